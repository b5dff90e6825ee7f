package binding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/ipam"
)

type rules struct{ err error }

func (r rules) Hold(context.Context, string) error { return r.err }

// TestWhatABindSaysWhoseRulesDoNotHold: a lease that has ended is not to be bound again.
func TestWhatABindSaysWhoseRulesDoNotHold(t *testing.T) {
	for what, c := range map[string]struct {
		err   error
		says  string
		again bool
	}{
		"they hold":         {nil, "", false},
		"not made":          {errors.New("the rules of nftables do not hold"), "; bind it again", true},
		"it ended":          {fmt.Errorf("lease 1: %w", ipam.ErrGone), "; allocate anew", false},
		"no row of it":      {ipam.ErrNotFound, "; allocate anew", false},
		"its address cools": {fmt.Errorf("lease 1: %w: it is cooling", ipam.ErrState), "; allocate anew", false},
	} {
		err := awaitRules(t.Context(), rules{c.err}, &ipam.Lease{})
		if (err == nil) != (c.err == nil) || c.err != nil && (!strings.Contains(err.Error(), c.says) || !errors.Is(err, c.err) || errors.Is(err, allocator.ErrBridge) != c.again) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
