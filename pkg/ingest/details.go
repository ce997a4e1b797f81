package ingest

import (
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// maxPatchBytes is the size limit of a patch of a thread's details. It allows for JSON escapes in a title.
const maxPatchBytes = 8 * record.MaxTitleBytes

// patchThread serves PATCH /v1/threads/{thread}. It writes the patch to the thread's partition without reading the thread. The compactor
// then sets the details that it names.
func (s *Service) patchThread(c *front.Call, t target) error {
	b, err := s.openJSON(c, t, "a patch")
	if err != nil {
		return err
	}
	defer b.close()
	text, err := readJSON(b, maxPatchBytes, b.claim.Take)
	if err != nil {
		return err
	}
	details, err := record.DecodePatch(text)
	if err != nil {
		return badLine(agui.RuleSchema, 0, "%v", err)
	}
	got, err := s.publishOne(c.R.Context(), t, record.KindThread, producer{}, record.EncodePatch(details))
	if err != nil {
		return err
	}
	return accept(c, http.StatusOK, struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	}{got.Partition, got.FirstOffset})
}
