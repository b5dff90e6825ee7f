package probe

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
)

// A question beside another that is being sent ends at its own deadline.
func TestF25DeadlineBesideAnotherQuestion(t *testing.T) {
	var p *Prober
	var err error
	nstest.New(t).Do(func() { p, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.sending.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	defer p.sending.Release(1)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := p.Ask(ctx, netip.MustParseAddr("10.8.0.7")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
