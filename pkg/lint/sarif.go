package lint

const project = "https://github.com/skeinhq/skein"

// node is an object of a SARIF log.
type node = map[string]any

// sarifProperties has the properties for which SARIF has no member.
type sarifProperties struct {
	Event int    `json:"event,omitempty"`
	RunID string `json:"runId,omitempty"`
	Type  string `json:"type,omitempty"`
	Path  string `json:"path,omitempty"`
}

// SARIF returns the findings as a SARIF 2.1.0 log, for encoding/json. version is the version of the program. Each finding's File
// must be a URI reference (RFC 3986), such as a path relative to the repository.
func SARIF(version string, findings []Finding) map[string]any {
	const language = "en-US"
	text := func(s string) node { return node{"text": s} }
	described := make([]node, len(rules))
	for i, r := range rules {
		described[i] = node{
			"id": r.Name, "shortDescription": text(r.Means), "help": text(r.Do), "helpUri": project + "/blob/main/docs/lint.md#rules",
			"defaultConfiguration": node{"level": r.Level},
		}
	}
	results := make([]node, len(findings))
	for i, f := range findings {
		results[i] = node{
			"ruleId": f.Rule, "ruleIndex": ruleIndex[f.Rule], "level": f.Level, "message": text(f.Message + ". " + f.Help),
			"locations": []node{{"physicalLocation": node{
				"artifactLocation": node{"uri": f.File},
				"region":           node{"startLine": max(f.Line, 1)}, // code scanning rejects a region without a line
			}}},
			"properties": sarifProperties{f.Event, string(f.Run), string(f.Type), string(f.Path)},
		}
	}
	return node{
		"$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		"version": "2.1.0",
		"runs": []node{{
			"tool": node{"driver": node{
				"name": "skein lint", "version": version, "informationUri": project, "language": language, "rules": described,
			}},
			// These three are SARIF's defaults, spelt out for readers that do not know them.
			"language": language, "newlineSequences": []string{"\r\n", "\n"}, "columnKind": "utf16CodeUnits",
			"results": results,
		}},
	}
}
