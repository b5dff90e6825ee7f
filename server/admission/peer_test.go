package admission

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A flood of uids does not fill memory or the log.
func TestRefusalsBounded(t *testing.T) {
	var log bytes.Buffer
	r := refusals{log: slog.New(slog.NewTextHandler(&log, nil))}
	for uid := range uint32(10 * maxRefusals) {
		r.note(&Peer{Name: "p"}, uid, "w")
	}
	if n := strings.Count(log.String(), "\n"); n != maxRefusals || len(r.seen) != maxRefusals {
		t.Errorf("%d lines, %d kept", n, len(r.seen))
	}
	if strings.Count(log.String(), "last_to_be_logged=true") != 1 {
		t.Error("the log does not say that it stops")
	}
}
