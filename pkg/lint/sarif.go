package lint

// Log is a document of SARIF 2.1.0, for encoding/json.
type Log struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool struct {
		Driver sarifDriver `json:"driver"`
	} `json:"tool"`
	// These three are SARIF's defaults, which some readers do not know.
	Language         string   `json:"language"`
	NewlineSequences []string `json:"newlineSequences"`
	ColumnKind       string   `json:"columnKind"`

	Results []sarifResult `json:"results"`
}

type sarifDriver struct {
	Name           string      `json:"name"`
	Version        string      `json:"version"`
	InformationURI string      `json:"informationUri"`
	Language       string      `json:"language"`
	Rules          []sarifRule `json:"rules"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifRule struct {
	ID                   string    `json:"id"`
	ShortDescription     sarifText `json:"shortDescription"`
	Help                 sarifText `json:"help"`
	HelpURI              string    `json:"helpUri"`
	DefaultConfiguration struct {
		Level Level `json:"level"`
	} `json:"defaultConfiguration"`
}

type sarifResult struct {
	RuleID     string          `json:"ruleId"`
	RuleIndex  int             `json:"ruleIndex"`
	Level      Level           `json:"level"`
	Message    sarifText       `json:"message"`
	Locations  []sarifLocation `json:"locations"`
	Properties sarifProperties `json:"properties,omitzero"`
}

type sarifLocation struct {
	PhysicalLocation struct {
		ArtifactLocation struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region struct {
			StartLine int `json:"startLine"`
		} `json:"region"`
	} `json:"physicalLocation"`
}

// sarifProperties has what SARIF has no member for.
type sarifProperties struct {
	Event int    `json:"event,omitempty"`
	RunID string `json:"runId,omitempty"`
	Type  string `json:"type,omitempty"`
	Path  string `json:"path,omitempty"`
}

const project = "https://github.com/skeinhq/skein"

// SARIF returns the findings as a SARIF 2.1.0 log; version is that of the program. Each finding's File must be a URI reference
// (RFC 3986), such as a path relative to the repository.
func SARIF(version string, findings []Finding) Log {
	const language = "en-US"
	run := sarifRun{Language: language, NewlineSequences: []string{"\r\n", "\n"}, ColumnKind: "utf16CodeUnits", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "skein lint", Version: version, InformationURI: project, Language: language}
	for _, r := range rules {
		rule := sarifRule{
			ID: r.Name, ShortDescription: sarifText{r.Means}, Help: sarifText{r.Do}, HelpURI: project + "/blob/main/docs/lint.md#rules",
		}
		rule.DefaultConfiguration.Level = r.Level
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	for _, f := range findings {
		result := sarifResult{
			RuleID: f.Rule, RuleIndex: ruleIndex[f.Rule], Level: f.Level, Message: sarifText{f.Message + ". " + f.Help},
			Properties: sarifProperties{f.Event, string(f.Run), string(f.Type), string(f.Path)},
		}
		at := sarifLocation{}
		at.PhysicalLocation.ArtifactLocation.URI = f.File
		at.PhysicalLocation.Region.StartLine = max(f.Line, 1) // code scanning takes nothing without a line
		result.Locations = []sarifLocation{at}
		run.Results = append(run.Results, result)
	}
	return Log{
		Schema:  "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		Version: "2.1.0", Runs: []sarifRun{run},
	}
}
