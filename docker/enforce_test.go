package docker_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// With rules in the kernel a container's port is held to its lease once an operator binds it to
// the namespace that dockerd says the container has, whatever the container configures then. A
// lease that names no place has no rules: what a container has configured moves none.
func TestN8DockerWithRules(t *testing.T) {
	w := newWorld(t, "[enforce]\nmode = 'enforce'\n[bridge]\nnetns = ['%[1]s/exec/netns']\n")
	w.network("sandboxes")
	a := w.sleeper("box-a", "--network", "sandboxes", "--cap-add", "NET_ADMIN")
	b, c := w.sleeper("box-b", "--network", "sandboxes"), w.sleeper("box-c", "--network", "sandboxes")
	reached := func(to string, more ...string) bool {
		_, err := w.try(append(append([]string{"exec", "box-a", "busybox", "ping", "-c", "1", "-W", "1"}, more...), to)...)
		return err == nil
	}
	inside := func(args ...string) { w.docker(append([]string{"exec", "box-a", "busybox", "ip", "addr"}, args...)...) }
	rules := func() (allowed []string, refused int) {
		r, err := w.client.Rules(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Ports {
			for _, a := range p.Allowed {
				allowed = append(allowed, a.Address)
			}
			refused += len(p.Refused)
		}
		return allowed, refused
	}
	if allowed, refused := rules(); !reached(b) || len(allowed) > 0 || refused > 0 {
		t.Errorf("leases that name no place have rules: %v, %d reasons", allowed, refused)
	}
	w.ipamctl("bind", w.ipamctl("whois", "-q", a), "--netns", w.docker("inspect", "-f", "{{.NetworkSettings.SandboxKey}}", "box-a"))
	if allowed, _ := rules(); len(allowed) != 1 || allowed[0] != a {
		t.Errorf("bound to its namespace it has %v", allowed)
	}
	realtest.Eventually(t, patience, "it to be received by its own address", func() bool { return reached(b) })
	inside("add", c+"/24", "dev", "eth0") // of a lease that names no place: the likeliest to be taken
	listener := w.ns.Wire(w.portOf("box-b"))
	mac, err := net.ParseMAC(w.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.MacAddress}}{{end}}", "box-a"))
	if err != nil {
		t.Fatal(err)
	}
	_ = reached(b, "-I", c)
	if !reached(b, "-I", a) {
		t.Error("it is not received by its own address")
	}
	own, anothers := netip.MustParseAddr(a).AsSlice(), netip.MustParseAddr(c).AsSlice()
	for {
		f, sent, ok := listener.Capture(patience)
		if !ok {
			t.Fatal("what it sent by its own address did not pass")
		}
		if !sent || len(f) < 34 || !bytes.Equal(f[6:12], mac) || f[12] != 8 || f[13] != 0 {
			continue
		}
		if bytes.Equal(f[26:30], anothers) {
			t.Fatal("what it sent by another's address passed")
		}
		if bytes.Equal(f[26:30], own) {
			break
		}
	}
	if allowed, refused := rules(); len(allowed) != 1 || allowed[0] != a || refused == 0 {
		t.Errorf("then it has %v, and %d reasons of refusal", allowed, refused)
	}
}
