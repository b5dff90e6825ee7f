package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server/servertest"
)

// An operator's day against the real server and a real book: what ipamctl
// sends is what the daemon takes, and every answer can be shown. Late
// releases name the lease and hit no other (L4).
func TestAgainstTheRealServer(t *testing.T) {
	rig := servertest.Start(t)
	w := &world{socket: rig.Socket}
	do := func(line string, code int, says ...string) string {
		t.Helper()
		s := &screen{}
		got := w.ctl(t, s, words(line)...)
		output := s.out.String() + s.err.String()
		if got != code {
			t.Errorf("ipamctl %s: exit %d, want %d:\n%s", line, got, code, output)
		}
		for _, want := range says {
			if !strings.Contains(output, want) {
				t.Errorf("ipamctl %s: no %q in:\n%s", line, want, output)
			}
		}
		return strings.TrimSpace(s.out.String())
	}

	do("status", 0, "is ready", "10.8.64.0/24")
	do("leases", 0, "no leases")
	id := do("allocate web-1 --attempt 2 --bind-within 5m --label tier=front -q", 0)
	var reply api.AllocateReply
	if err := json.Unmarshal([]byte(do("allocate web-1 --attempt 2 -o json", 0, `"existing": true`)), &reply); err != nil {
		t.Fatal(err)
	}
	addr := reply.Leases[0].Address
	if reply.Leases[0].ID != id {
		t.Errorf("asked again it is lease %s, not %s", reply.Leases[0].ID, id)
	}
	do("bind "+id+" --container sandbox/web-1 --netns /run/netns/web-1 --host-interface veth1 --mac 02:42:0a:08:40:02", 0, "bound", "sandbox/web-1")
	do("leases --sandbox web-1 --state bound --pool default -o wide", 0, addr, id)
	do("show "+id[len(id)-8:], 0, addr)
	do("leases --sandbox nobody", 0, "no lease matches")
	do("leases --pool nowhere", exitUsage, "there is: default", "hint: the pools: ipamctl pools")
	do("show web-1", 0, addr, "tier=front", "veth1")
	do("show "+id, 0, addr)
	do("whois "+addr, 0, "belongs to web-1", "netns", "not seen", "reserved → bound")
	do("whois 10.8.64.1", 0, "never handed out", "gateway")
	do("whois 192.0.2.1", 0, "in no pool")
	do("history "+addr+" --since 2020-01-01T00:00:00Z --limit 10", 0, "free → reserved")
	do("history web-1", 0, addr)
	do("history --lease "+id, 0, addr)
	do("history "+id, 0, addr)
	do("history "+id[len(id)-8:], 0, addr)
	do("map", 0, "B bound 1", "G gateway 1")
	do("pools", 0, "default", "1 bound")
	do("doctor", 0, "nothing found")
	do("version", 0, "ipamd", "The two differ")

	do("allocate web-2 --address "+addr, exitConflict, "whois")
	do("allocate web-2 --address 192.0.2.1", exitUsage)
	do("allocate web-2 --pool nowhere", exitGone)
	do("allocate web-2 --interface 'no good'", exitUsage)
	do("bind "+id+" --mac nonsense", exitUsage, "mac")
	do("release "+id+" --uid somebody-else", exitUsage, "uid")
	do("release "+id+" --wait 2m", exitUsage, "wait")
	do("release 0197f2c0-5b7e-7c3a-9d41-00000000ffff", exitGone)
	do("release "+id, 0, addr, "releasing")
	do("whois "+addr, 0, "releasing")
	do("show "+id, 0, "What keeps it", "unconfirmed")
	do("show web-1", 0, "What keeps it", "unconfirmed")
	do("history "+addr+" --since 2020-01-01", 0, "Holders", "released by client", "bound → releasing")
	do("history web-1 --since 1000h", 0, "Holders", "releasing")
	do("history web-1 --since 2099-01-01", 0, "no recorded change matches")
	rig.Confirm(t, id)
	do("show "+id, 0, "cooling")
	do("history --lease "+id, 0, "removal_confirmed", "cooling")

	lost := do("allocate web-9 -q", 0)
	do("release "+lost+" --force", exitUsage, "--reason")
	do("release "+lost+" --force --reason 'its containerd is lost'", 0, "quarantined", "no witness has seen it")
	do("history --lease "+lost, 0, "releasing → quarantined", "forced: its containerd is lost")
	do("reconcile", 0, "clear")
	twoIDs := do("allocate web-7 -q", 0) + "\n" + do("allocate web-8 -q", 0)
	if got := do("release --sandbox web-7 --sandbox web-8 -q", 0); got != twoIDs {
		t.Errorf("two sandboxes are released by name, %q, and %q is", twoIDs, got)
	}

	do("reconcile --preview", 0, "nothing to do, all agree", "4 leases compared")
	seen := []byte(`[{"address":"10.8.64.98","witness":"netns","port":"veth9"}]`)
	if _, err := rig.Book.Quarantine(t.Context(), netdbtest.Who(ipam.ByReconciler, "seen_on_wire"), netip.MustParseAddr("10.8.64.98"), seen); err != nil {
		t.Fatal(err)
	}
	do("reconcile --preview", 0, "clear", "10.8.64.98", "1 step: 1 planned", "next: ipamctl reconcile")
	do("whois 10.8.64.98", 0, "quarantined")
	do("reconcile -q", 0, "10.8.64.98")
	do("whois 10.8.64.98", 0, "cooling")
	do("status", 0, "last pass", "1 step: 1 done")
	do("reconcile --confirm", 0, "nothing to do")

	do("quarantine add 10.8.64.99 --reason 'the printer'", 0, "10.8.64.99", "quarantined")
	do("quarantine ls", 0, "10.8.64.99", "the printer")
	do("whois 10.8.64.99", 0, "until it is cleared")
	do("quarantine ls -q", 0, "10.8.64.99")
	do("quarantine clear 10.8.64.99", 0, "cooling")
	do("quarantine ls", 0, "no address is quarantined")
	do("quarantine add 192.0.2.1 --reason x", exitUsage)
}

// A reader is shown who may, in words that are not said twice.
func TestARefusalNamesTheRoleThatMay(t *testing.T) {
	rig := servertest.Start(t)
	if err := os.Chmod(filepath.Dir(rig.Socket), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(rig.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for line, hint := range map[string]string{
		"quarantine add 10.8.64.9 --reason why": "hint: only root may: try it with sudo",
		"allocate web-1":                        "hint: root may, and the users and groups that socket.runtime_uids",
	} {
		s := &screen{}
		code := asNobody(t, func() int { return (&world{socket: rig.Socket}).ctl(t, s, words(line)...) })
		if output := s.err.String(); code != exitPermission || !strings.Contains(output, hint) || strings.Count(output, "permission denied") != 1 {
			t.Errorf("%s: exit %d: %s", line, code, output)
		}
	}
}
