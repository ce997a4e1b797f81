package lineage

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// msgs makes messages of words such as "u1", "u1:edited" (an id and a content that differs) or
// "@a1" (an activity message).
func msgs(words string) []agui.Message {
	var list []agui.Message
	for _, w := range strings.Fields(words) {
		id, content, _ := strings.Cut(w, ":")
		role := agui.RoleUser
		if strings.HasPrefix(id, "@") {
			role = agui.RoleActivity
		}
		list = append(list, agui.Message{ID: id, Role: role,
			Raw: json.RawMessage(fmt.Sprintf(`{"id":%q,"role":%q,"content":%q}`, id, role, content))})
	}
	return list
}

// words is the inverse of msgs.
func words(list []agui.Message) string {
	var out []string
	for _, m := range list {
		var v struct{ ID, Content string }
		if err := json.Unmarshal(m.Raw, &v); err != nil {
			return err.Error()
		}
		w := v.ID
		if v.Content != "" {
			w += ":" + v.Content
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

func inputOf(words string) *agui.RunAgentInput {
	return &agui.RunAgentInput{Messages: msgs(words)}
}

// placed is Place of a thread that cannot fail.
func placed(th *Thread, s Start) Placement {
	p, err := th.Place(s)
	if err != nil {
		panic(err)
	}
	return p
}
