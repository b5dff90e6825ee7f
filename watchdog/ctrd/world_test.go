package ctrd_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

const (
	ownerLabel = "runtime.computer/entity-id"
	ipLabel    = "runtime.computer/ip"
	leaseLabel = "ipamd.dev/lease-id"

	soon = time.Minute // longer than anything here takes on a machine that stands still now and then
)

// A world is a containerd and a witness that looks at it.
type world struct {
	*testing.T
	d     *ctrdtest.Daemon
	board *census.Board
	cfg   ctrd.Config
	w     *ctrd.Witness
}

// look makes a witness of d that never reads without a reason, so that what a
// test sees came by events. It does not run yet.
func look(t *testing.T, d *ctrdtest.Daemon, change ...func(*ctrd.Config)) *world {
	t.Helper()
	x := &world{T: t, d: d, board: census.NewBoard(census.Runtime)}
	x.cfg = ctrd.Config{
		Address:      d.Address,
		Namespaces:   []string{"sandboxes"},
		OwnerLabel:   ownerLabel,
		AddressLabel: ipLabel,
		LeaseLabel:   leaseLabel,
		Timeout:      soon,
		Board:        x.board,
		Every:        time.Hour,
		Log:          slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&x.cfg)
	}
	w, err := ctrd.New(x.cfg)
	if err != nil {
		t.Fatal(err)
	}
	x.w = w
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

// run starts the witness; it stops with the test, or by the returned function.
func (x *world) run() (stop func()) {
	x.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- x.w.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			x.Errorf("Run returned %v when asked to stop", err)
		}
	}
	x.Cleanup(stop)
	return stop
}

func (x *world) container(id, ip string) {
	x.Helper()
	x.d.Create(x, ctrdtest.Spec{Namespace: "sandboxes", ID: id, Labels: map[string]string{ipLabel: ip, ownerLabel: "s-" + id}})
}

// eventually waits for the board to be as said.
func (x *world) eventually(what string, ok func() bool) {
	x.Helper()
	realtest.Eventually(x, soon, what, ok)
}

func (x *world) seen(ip string) []census.Sighting {
	return x.board.About(netip.MustParseAddr(ip)).Seen
}

// by returns the containers that claim an address, as one word.
func (x *world) by(ip string) string {
	var all string
	for _, s := range x.seen(ip) {
		if all != "" {
			all += " "
		}
		all += s.Namespace + "/" + s.Container
	}
	return all
}

// silence returns why the witness is silent, "" when it is not.
func (x *world) silence() string {
	for _, s := range x.board.Silent() {
		return s.Reason
	}
	return ""
}

func (x *world) speaks() bool { return x.silence() == "" }
