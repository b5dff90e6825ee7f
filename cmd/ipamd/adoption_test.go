package main

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/netdb"
)

// Scenario P1: the book of another runner, or of another machine under the same name, is
// read and nothing else: no address is given, bound, released, quarantined or freed by
// who asks or by a pass. An operator who has looked adopts that very book, and then the
// daemon goes on as from a start.
func TestAnotherRunnersBookGivesNothing(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*world){
		"another runner": func(w *world) { w.cfg.Book.RunnerUID = "runner-two" },
		"another machine": func(w *world) {
			w.edit(`UPDATE book SET machine_id = 'ffffffffffffffffffffffffffffffff'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "another machine" && !machineIsKnown() {
				t.Log("this machine has no id, so no book is another's")
				return
			}
			w := newWorld(t, quick, func(c *config.Config) { c.Book.RunnerUID = "runner-one" })
			here := w.give("here", "10.8.64.2").Leases[0]
			port := w.ns.Port("rt0", "10.8.64.2/24")
			if _, err := w.client.Bind(ctx, here.ID, api.BindRequest{HostInterface: port.HostName, MAC: port.MAC.String()}); err != nil {
				t.Fatal(err)
			}
			there := w.give("there", "10.8.64.3").Leases[0]
			if _, err := w.client.Bind(ctx, there.ID, api.BindRequest{HostInterface: "veth-there", MAC: "02:00:00:00:00:03"}); err != nil {
				t.Fatal(err)
			}
			waits := w.give("waits", "10.8.64.4").Leases[0]
			plain, later := w.withoutMAC("plain"), w.withoutMAC("later")
			net, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "net", PrefixLength: 28})
			if err != nil {
				t.Fatal(err)
			}
			w.stopDaemon()
			spoil(w)
			w.later(later)
			w.ns.Port("rt0", "10.8.64.9/24") // a stranger, whom a pass quarantines
			w.start()

			rev, rows := w.program.book.Rev(), w.rows()
			for verb, err := range map[string]error{
				"allocate": func() error {
					_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
					return err
				}(),
				"the same again": func() error {
					_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "here"})
					return err
				}(),
				"release":    func() error { _, err := w.client.Release(ctx, here.ID, api.ReleaseRequest{}); return err }(),
				"quarantine": func() error { _, err := w.client.Quarantine(ctx, "10.8.64.200", "by hand"); return err }(),
				"cancel": func() error {
					_, err := w.client.Cancel(ctx, api.CancelRequest{UID: "x", Attempt: 1})
					return err
				}(),
				"reconcile": func() error { _, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); return err }(),
			} {
				if !errors.Is(err, client.ErrIdentityMismatch) {
					t.Errorf("%s: %v", verb, err)
				}
			}
			if _, err := w.client.Ready(ctx); !errors.Is(err, client.ErrNotReady) {
				t.Errorf("readyz says %v", err)
			}
			if got := w.findings(); !slices.Contains(got, "identity_mismatch") {
				t.Errorf("doctor says %v", got)
			}
			if err := w.program.prover.Prove(ctx, wait); err != nil {
				t.Errorf("it cannot prove that it is alive: %v", err)
			}

			look, err := w.client.AdoptBook(ctx, api.AdoptBookRequest{})
			if err != nil || look.Adopted || look.Mismatch == "" || look.Plan == nil {
				t.Fatalf("look: %+v, %v", look, err)
			}
			standing := make(map[string]string)
			for _, l := range look.Leases {
				standing[l.Sandbox+" "+l.Address] = l.Standing
				if (l.Detail != "") != (l.Standing == "unproven") {
					t.Errorf("of %s it says %q", l.Sandbox, l.Detail)
				}
			}
			if want := map[string]string{"here 10.8.64.2": "live", "there 10.8.64.3": "not_seen", "waits 10.8.64.4": "not_seen",
				"plain " + plain.held.Address: "live", "later " + later.held.Address: "unproven", "net " + net.Leases[0].Address + "/28": "not_seen"}; !maps.Equal(standing, want) {
				t.Errorf("its leases are %v, want %v", standing, want)
			}
			if !slices.ContainsFunc(look.Plan.Actions, func(a api.Action) bool { return a.Kind == "quarantine" && a.Address == "10.8.64.9" }) {
				t.Errorf("the plan is %+v", look.Plan)
			}
			if _, err := w.client.AdoptBook(ctx, api.AdoptBookRequest{Epoch: "another"}); !errors.Is(err, client.ErrStaleRevision) {
				t.Errorf("another book was confirmed: %v", err)
			}
			if s, err := w.client.Status(ctx); err != nil || s.LastPass != nil {
				t.Errorf("a pass was made: %+v, %v", s, err)
			}
			if w.program.book.Rev() != rev || !slices.Equal(w.rows(), rows) {
				t.Fatalf("the book is at %d with %v, was at %d with %v", w.program.book.Rev(), w.rows(), rev, rows)
			}

			done, err := w.client.AdoptBook(ctx, api.AdoptBookRequest{Epoch: look.Book.Epoch, Reason: "it moved"})
			if err != nil || !done.Adopted || done.Book.Epoch == look.Book.Epoch || done.Epoch != done.Book.Epoch {
				t.Fatalf("adopt: %+v, %v", done, err)
			}
			if _, err := w.client.AdoptBook(ctx, api.AdoptBookRequest{Epoch: look.Book.Epoch}); !errors.Is(err, client.ErrStaleRevision) {
				t.Errorf("adopted twice: %v", err)
			}
			w.becomes("10.8.64.9", api.Quarantined)
			w.give("new", "10.8.64.32")
			if w.state("10.8.64.2") != api.Bound || w.state("10.8.64.3") != api.Bound {
				t.Errorf("its leases are %s and %s", w.state("10.8.64.2"), w.state("10.8.64.3"))
			}
			if _, err := w.client.Release(ctx, waits.ID, api.ReleaseRequest{}); err != nil {
				t.Error(err)
			}
			w.becomes("10.8.64.4", api.Free) // the loops run
			w.stopDaemon()
			w.start()
			if _, err := w.client.Ready(ctx); err != nil || w.program.book.Epoch() != done.Epoch {
				t.Errorf("behind a restart: %v, epoch %s, was %s", err, w.program.book.Epoch(), done.Epoch)
			}
		})
	}
}

// Scenario P3: a configuration whose pool takes the prefix of another runner's pool adopts
// nothing. A look lists each row that would not be taken over, with its pool's uid, that of
// the pool that would have it, and why; so does the refusal, of the first one. A row that
// cannot be read is listed, too, and keeps no book from being adopted.
func TestAnAdoptionThatAPoolIsInTheWayOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, func(c *config.Config) { c.Book.RunnerUID = "runner-one" })
	held := w.give("a", "10.8.64.2").Leases[0]
	cooled := w.cool("b")
	w.give("broken", "10.8.64.4")
	w.stopDaemon()
	w.edit(`UPDATE leases SET labels = '[1]' WHERE address = '10.8.64.4'`)
	w.edited = append(w.edited, netdb.RowsAreReadable)
	w.cfg.Book.RunnerUID, w.cfg.Pools[0].Name = "runner-two", "other"
	w.start()
	book := w.program.book
	was, rev, old := book.Identity(), book.Rev(), book.Pools()[0].UID

	look, err := w.client.AdoptBook(ctx, api.AdoptBookRequest{})
	if err != nil || look.Refused != 3 || len(look.Refusals) != 3 || !strings.Contains(look.Blocked, "pool other") {
		t.Fatalf("look: %+v, %v", look, err)
	}
	for i, want := range []api.BookRefusal{
		{Address: "10.8.64.4"},
		{Address: held.Address, PoolUID: old, LeaseID: held.ID, Sandbox: "a", State: api.Reserved},
		{Address: cooled.Address, PoolUID: old, LeaseID: cooled.ID, Sandbox: "b", State: api.Cooling},
	} {
		got := look.Refusals[i]
		if got.Reason == "" || (got.NewPoolUID == "") != (i == 0) || got.NewPoolUID == old {
			t.Errorf("%+v", got)
		}
		if got.Reason, got.NewPoolUID = "", ""; got != want {
			t.Errorf("refused is %+v, want %+v", got, want)
		}
	}
	_, err = w.client.AdoptBook(ctx, api.AdoptBookRequest{Epoch: was.Epoch})
	if !errors.Is(err, client.ErrPoolOverlap) {
		t.Fatalf("adopt: %v", err)
	}
	wants(t, "the refusal", err.Error(), "address 10.8.64.2 is of pool uid "+old+", and uid ", " would have it", "pool other")
	if book.Identity() != was || book.Rev() != rev {
		t.Errorf("it is %+v at %d, was %+v at %d", book.Identity(), book.Rev(), was, rev)
	}

	w.stopDaemon()
	w.cfg.Pools[0].Name = "default"
	w.start()
	look, err = w.client.AdoptBook(ctx, api.AdoptBookRequest{})
	if err != nil || look.Refused != 1 || look.Blocked != "" || look.Refusals[0].Address != "10.8.64.4" || !strings.Contains(look.Refusals[0].Reason, "labels") {
		t.Fatalf("with its own name: %+v, %v", look, err)
	}
	if done, err := w.client.AdoptBook(ctx, api.AdoptBookRequest{Epoch: was.Epoch}); err != nil || !done.Adopted {
		t.Errorf("adopt: %+v, %v", done, err)
	}
}

// rows is every row of the book, as text.
func (w *world) rows() (out []string) {
	leases, _ := w.program.book.Leases()
	for _, l := range leases {
		out = append(out, strings.Join([]string{l.Addr.String(), string(l.State), l.ID}, " "))
	}
	return out
}

func machineIsKnown() bool {
	id, err := os.ReadFile("/etc/machine-id")
	return err == nil && strings.TrimSpace(string(id)) != ""
}
