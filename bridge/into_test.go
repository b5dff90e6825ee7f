package bridge

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Of many namespaces each has its answer, in its place, also where more of them lie on a file system that hangs than are looked
// at side by side; and what was open for it is closed.
func TestG13PortsIntoManyNamespaces(t *testing.T) {
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	a, b := ns.Port("rt0"), ns.Port("rt0")
	far := nstest.New(t)
	stuck := filepath.Join(t.TempDir(), "stuck")
	answer := nstest.Hang(t, stuck)
	v := open(t, ns, func(c *Config) { c.NetnsFolders = []string{stuck} })
	t.Cleanup(answer) // before the bridge is closed
	of := []census.RecordedNetns{{Path: a.NS.Path(), Inode: inode(t, a.NS.Path())}}
	for i := range 2 * abreast {
		of = append(of, census.RecordedNetns{Path: filepath.Join(stuck, fmt.Sprint(i)), Inode: 1})
	}
	of = append(of, census.RecordedNetns{Path: b.NS.Path(), Inode: inode(t, b.NS.Path())},
		census.RecordedNetns{Path: a.NS.Path(), Inode: inode(t, b.NS.Path())}, census.RecordedNetns{Path: far.Path(), Inode: inode(t, far.Path())},
		census.RecordedNetns{Path: "/run/netns/no-such-thing", Inode: 1}, census.RecordedNetns{Path: "/dev/null", Inode: 1})
	index := func(p *nstest.Port) []int {
		l, err := ns.Netlink().LinkByName(p.HostName)
		if err != nil {
			t.Fatal(err)
		}
		return []int{l.Attrs().Index}
	}
	want := map[int][]int{0: index(a), 2*abreast + 1: index(b)}
	realtest.Eventually(t, wait, "each to have its answer", func() bool { // which a busy kernel may not give in time
		for i, into := range v.PortsInto(t.Context(), of...) {
			hangs := i > 0 && i <= 2*abreast
			if hangs != (into.Err != nil) || !slices.Equal(into.Ports, want[i]) {
				t.Logf("%+v: %+v", of[i], into)
				return false
			}
		}
		return true
	})
	if index, inode, err := v.PlugOf(t.Context(), "", of[1].Path); index != 0 || inode != 0 || err == nil {
		t.Errorf("what lies on a file system that hangs is %d, %d, %v", index, inode, err)
	}
	if none := v.PortsInto(t.Context()); len(none) > 0 {
		t.Errorf("nothing is asked, and answered is %v", none)
	}
}
