package metrics

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/config"
)

// G18: an address that stands for all is a warning; one address is none.
func TestG18MetricsForEverybodyAreWarnedOf(t *testing.T) {
	for listen, warns := range map[string]bool{"0.0.0.0:0": true, "[::]:0": true, "[::ffff:0.0.0.0]:0": true, ":0": false, "127.0.0.1:0": false} {
		at, err := config.Metrics{Listen: listen}.AddrPort()
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		l, err := Listen(at, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if got := strings.Contains(log.String(), "level=WARN msg=\"metrics can be read from every network"); got != warns {
			t.Errorf("%s: warned %v: %s", listen, got, log.String())
		}
	}
}
