package fold

import (
	"encoding/json"
	"testing"
)

func TestUsageOf_TellsAbsentFromZeroAndProvidersApart(t *testing.T) {
	for name, c := range map[string]struct{ usage, want string }{
		"none":        {`[]`, `null`},
		"null":        {`null`, `null`},
		"no counts":   {`[{}]`, `[{}]`},
		"zero":        {`[{"model":"m","inputTokens":0}]`, `[{"model":"m","inputTokens":0}]`},
		"a total":     {`[{"model":"m","inputTokens":1e2,"outputTokens":2,"totalTokens":7}]`, `[{"model":"m","inputTokens":100,"outputTokens":2}]`},
		"given again": {`[{"model":7,"model":"m","inputTokens":1,"inputTokens":2}]`, `[{"model":"m","inputTokens":2}]`},
		"providers": {`[{"provider":"b","model":"m","inputTokens":1},{"provider":"a","model":"m","inputTokens":2},{"model":"m","inputTokens":3}]`,
			`[{"model":"m","inputTokens":3},{"provider":"a","model":"m","inputTokens":2},{"provider":"b","model":"m","inputTokens":1}]`},
		"a pair that comes again": {`[{"model":"m","inputTokens":100,"outputTokens":20,"cachedInputTokens":90},{"model":"m","inputTokens":10,"outputTokens":2,"totalTokens":12}]`,
			`[{"model":"m","inputTokens":110,"outputTokens":22,"cachedInputTokens":90}]`},
		"a pair of which one lacks a count": {`[{"model":"m","outputTokens":5},{"model":"m","inputTokens":10,"outputTokens":2},{"model":"m","inputTokens":1}]`,
			`[{"model":"m"}]`},
		"half surrogates": {`[{"provider":"\ud800","model":"\ud801","reasoningTokens":0,"cacheWriteInputTokens":1}]`,
			`[{"provider":"\ud800","model":"\ud801","reasoningTokens":0,"cacheWriteInputTokens":1}]`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(usageOf(json.RawMessage(`{"type":"RUN_FINISHED","usage":` + c.usage + `}`)))
			if err != nil || string(got) != c.want {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}
