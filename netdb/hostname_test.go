package netdb_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// links is the links of a host, by name.
type links map[string]bool

// naming proposes the first name that no other's link has.
func naming(b *netdb.Book, uid, want string, there links) netdb.Naming {
	n := netdb.Naming{Want: want, Name: want}
	for name, own := range b.Names(uid, "eth0", want) {
		if n.Name = name; own || !there[name] {
			break
		}
	}
	return n
}

// reserveNamed gives a sandbox's interface an address and a name.
func reserveNamed(b *netdb.Book, p *ipam.Pool, sandbox, iface string, n netdb.Naming) (*ipam.Lease, string, error) {
	c, err := b.Pick(p.UID, Policy)
	if err != nil {
		return nil, "", err
	}
	defer b.Drop(c)
	ls, err := b.Reserve(ctx, Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: sandbox, UID: sandbox, Interface: iface, Attempt: 1, BindWithin: 10 * time.Minute, Naming: n})
	if err != nil {
		return nil, "", err
	}
	return ls[0], b.HostName(sandbox, iface), nil
}

// A name that no link can have, and a pattern without room for its number, name the field.
func TestBadHostNamesAreRefused(t *testing.T) {
	b := Open(t)
	p, rev := b.Pools()[0], b.Rev()
	for _, want := range []string{"sixteen-bytes-is", "a/b", "a b", "..", "veth:1", "%d", "twelve-bytes%d", "veth%d%d", "veth%dx", "veth%s", "100%"} {
		_, _, err := reserveNamed(b, p, "a", "eth0", naming(b, "a", want, nil))
		if fe := new(ipam.FieldError); !errors.As(err, &fe) || fe.Field != "host_interface_name" {
			t.Errorf("%q: %v", want, err)
		}
	}
	if b.Rev() != rev {
		t.Errorf("revision went from %d to %d", rev, b.Rev())
	}
	for i, want := range []string{"fifteen-bytes-x", "v", "eleven-byte%d", "v%d"} {
		if _, name, err := reserveNamed(b, p, fmt.Sprint("ok", i), "eth0", naming(b, fmt.Sprint("ok", i), want, nil)); err != nil || name == "" || len(name) > ipam.MaxInterface {
			t.Errorf("%q: %q, %v", want, name, err)
		}
	}
}

// Who has no lease of a name binds to no link of that name, and its own lease is as it was.
func TestABindToAnothersHostName(t *testing.T) {
	b := Open(t)
	p := b.Pools()[0]
	owner, name, err := reserveNamed(b, p, "a", "eth0", naming(b, "a", "veth-a", nil))
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := reserveNamed(b, p, "b", "eth0", netdb.Naming{})
	if err != nil {
		t.Fatal(err)
	}
	who, rev := Who(ipam.ByClient, "bound"), b.Rev()
	if l, err := b.Bind(ctx, who, other.ID, 0, ipam.Binding{HostInterface: name, Netns: "/run/netns/b"}); !errors.Is(err, ipam.ErrNameTaken) {
		t.Errorf("another's name: %v, %v", l, err)
	}
	if b.Rev() != rev {
		t.Errorf("a bind that was refused went from revision %d to %d", rev, b.Rev())
	}
	if _, err := b.Bind(ctx, who, owner.ID, 0, ipam.Binding{HostInterface: name}); err != nil {
		t.Errorf("its own name: %v", err)
	}
	if _, err := b.Bind(ctx, who, other.ID, 0, ipam.Binding{HostInterface: "veth-b"}); err != nil {
		t.Errorf("a name that no lease has: %v", err)
	}
}

// A name has one holder: from its lease to the confirmed removal, over restarts, and for
// all addresses of one interface; no link of the host has it when it is given.
func TestAHostNameHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	six := Pool(t, b, "default", "fd00:8::/64")
	give := func(p *ipam.Pool, sandbox, want string, there links) (*ipam.Lease, string) {
		t.Helper()
		l, name, err := reserveNamed(b, p, sandbox, "eth0", naming(b, sandbox, want, there))
		if err != nil {
			t.Fatal(err)
		}
		return l, name
	}
	taken := func(sandbox, want string) {
		t.Helper()
		rev := b.Rev()
		_, _, err := reserveNamed(b, p, sandbox, "eth0", naming(b, sandbox, want, nil))
		if !errors.Is(err, ipam.ErrNameTaken) || b.Rev() != rev {
			t.Errorf("%s wants %s: %v, at revision %d after %d", sandbox, want, err, b.Rev(), rev)
		}
	}
	four, name := give(p, "a", "veth-a", nil)
	if name != "veth-a" {
		t.Fatalf("a has %q", name)
	}
	taken("b", "veth-a")
	// The other family shares the name, and what fits is no other one.
	second, name := give(six, "a", "veth-a", links{"veth-a": true})
	if name != "veth-a" {
		t.Errorf("its IPv6 address has %q", name)
	}
	rev := b.Rev()
	if l, err := b.Name(ctx, allocator, four.ID, naming(b, "a", "veth-a", links{"veth-a": true})); err != nil || l.Rev != four.Rev || b.Rev() != rev {
		t.Errorf("asked again: %+v, %v", l, err)
	}
	if _, err := b.Name(ctx, allocator, four.ID, naming(b, "a", "veth-z", nil)); !errors.Is(err, ipam.ErrState) {
		t.Errorf("another name beside it: %v", err)
	}

	// Names of a pattern differ, also from links and from each other in one commit.
	seen := map[string]bool{"veth-a": true}
	for i := range 20 {
		_, name := give(p, fmt.Sprint("c", i), "veth%d", nil)
		if seen[name] || !strings.HasPrefix(name, "veth") || len(name) > ipam.MaxInterface {
			t.Fatalf("given twice, or no name of the pattern: %q", name)
		}
		seen[name] = true
	}
	// It ends with the last address of its interface, and not before the removal is confirmed.
	Close(t, b)
	b = OpenAt(t, path, Options())
	taken("b", "veth-a")
	Cool(t, b, four)
	taken("b", "veth-a")
	r, err := b.Release(ctx, client, second.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	taken("b", "veth-a")
	if _, err := b.Confirm(ctx, watchdog, r.ID, r.Rev, nil); err != nil {
		t.Fatal(err)
	}
	if name := b.HostName("a", "eth0"); name != "" {
		t.Errorf("a has %q", name)
	}
	if _, name := give(p, "b", "veth-a", nil); name != "veth-a" {
		t.Errorf("b has %q", name)
	}
	Close(t, b)
	b = OpenAt(t, path, Options())
	if names := b.HostNames(); len(names) != 21 || b.HostName("b", "eth0") != "veth-a" {
		t.Errorf("after a restart: %v", names)
	}
}

// A name stays with what is quarantined, and a lease that records its own link gets that
// link's name, though the link is there: so it is after a rebuild.
func TestAHostNameOfALinkThatIsThere(t *testing.T) {
	b := Open(t)
	p := b.Pools()[0]
	l, _, err := reserveNamed(b, p, "a", "eth0", naming(b, "a", "veth-a", nil))
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Release(ctx, client, l.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.QuarantineReleasing(ctx, watchdog, r.ID, r.Rev, evidence); err != nil {
		t.Fatal(err)
	}
	if _, _, err := reserveNamed(b, p, "b", "eth0", naming(b, "b", "veth-a", nil)); !errors.Is(err, ipam.ErrNameTaken) {
		t.Errorf("of a quarantined address: %v", err)
	}
	if _, err := Clear(b, l.Addr); err != nil {
		t.Fatal(err)
	}
	if name := b.HostName("a", "eth0"); name != "" {
		t.Errorf("what is cleared has %q", name)
	}

	c := Reserve(t, b, "c")
	if _, err := b.Bind(ctx, client, c.ID, 0, ipam.Binding{HostInterface: "veth77"}); err != nil {
		t.Fatal(err)
	}
	all := links{"veth77": true, "veth78": true}
	if _, err := b.Name(ctx, allocator, c.ID, naming(b, "c", "veth%d", all)); err != nil || b.HostName("c", "eth0") != "veth77" {
		t.Errorf("its own link is %q, %v", b.HostName("c", "eth0"), err)
	}
}
