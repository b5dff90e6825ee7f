package binding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

type rules struct{ err error }

func (r rules) Ensure(context.Context, string) error { return r.err }

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

// An operator adopts an address for a lease that records a container from when there was a runtime: no
// other way out is left. A container that is named now is refused, as a bind's is.
func TestAnAdoptionKeepsTheContainersThatAreRecorded(t *testing.T) {
	b := Open(t)
	Pool(t, b, "default", "10.8.64.0/24")
	old := ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "a"}}}
	l, err := b.Bind(t.Context(), Who(ipam.ByClient, "bound"), Reserve(t, b, "a").ID, 0, old)
	if err != nil {
		t.Fatal(err)
	}
	binds := &Book{Book: b, Kernel: ports{}}
	for name, tt := range map[string]struct {
		of      ipam.Binding
		refused bool
	}{"recorded": {old, false}, "named now": {ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "b"}}}, true}} {
		_, err := binds.Adopt(t.Context(), Who(ipam.ByOperator, "adopted_by_hand"), ipam.Adoption{Addr: l.Addr, ID: l.ID, Sandbox: "a", Binding: tt.of})
		var field *ipam.FieldError
		if is := errors.As(err, &field) && field.Field == "containers[0].namespace"; err == nil || is != tt.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
