package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// The incident, by CNI: the row of a container that runs is lost, and many are added after
// that. None gets its address, below the reference bridge or by ipamd's own plugging.
func TestTheIncidentByCNI(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "sqlite3")
	for _, kind := range []string{"bridge", "main"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "10.8.64.0/29", "") // five addresses
			if w.network("n", "1.1.0", ""); kind == "main" {
				w.mainNetwork("n", "1.1.0", "")
			}
			victim := nstest.New(t)
			w.added(w.cnitool("add", "n", victim.Path()))
			address := w.leases()[0].Address
			w.stop()
			if out, err := exec.Command("sqlite3", filepath.Join(w.dir, "book.db"), "DELETE FROM leases WHERE address = '"+address+"'").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w.start()
			for i := range 6 {
				box := nstest.New(t)
				out, err := w.cnitool("add", "n", box.Path())
				if (err == nil) != (i < 4) {
					t.Errorf("add %d of five addresses, one of which is in use: %v", i, err)
				}
				if err == nil && w.added(out, err).IPs[0].Address.IP.String() == address {
					t.Fatalf("%s was given again while its container lives", address)
				}
			}
			victim.Exec("busybox", "ping", "-c1", "-W5", "10.8.64.1")
			realtest.Eventually(t, wait, "who lives with it is seen, and no other has it", func() bool {
				r, err := w.client.Whois(t.Context(), address)
				return err == nil && r.State == "quarantined"
			})
		})
	}
}
