package rtnl

import (
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// All namespaces that live are listed, however many parts the kernel's list takes, and while others end.
// Since Linux 6.10 it ends with its first part: "ip netns list-id" shows 134.
func TestNamespacesThatLiveAreListed(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	for name, tt := range map[string]struct{ ending, living int }{
		"one part":            {0, 60},
		"a full page":         {3, 134},
		"a few parts":         {20, 240},
		"several large parts": {3, 1400},
	} {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t)
			dial := func() (k *Socket) {
				var err error
				if ns.Do(func() { k, err = Dial(unix.NETLINK_ROUTE) }); err != nil {
					t.Fatal(err)
				}
				return k
			}
			k := dial()
			defer k.Close()
			made := func() (netns.NsHandle, int) {
				ns := unnamed(t)
				id, err := IDOf(k, int(ns))
				if err != nil {
					t.Fatal(err)
				}
				return ns, id
			}
			ends, lives := make(map[int]netns.NsHandle), make([]int, tt.living)
			for range tt.ending {
				ns, id := made()
				ends[id] = ns
			}
			for i := range lives {
				var ns netns.NsHandle
				ns, lives[i] = made()
				defer ns.Close()
			}
			listed := func() {
				fresh := dial() // whose first part is a small one
				defer fresh.Close()
				ids, err := fresh.NetnsIDs()
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range lives {
					if _, is := slices.BinarySearch(ids, id); !is {
						t.Fatalf("nsid %d lives, and is not among %d listed", id, len(ids))
					}
				}
			}
			listed()
			for id, ns := range ends {
				ns.Close()
				for there := true; there; listed() {
					var err error
					if there, err = k.HasNetns(id); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// unnamed makes a network namespace, which lives while the handle is open.
func unnamed(t *testing.T) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	made, err := netns.New()
	if back := netns.Set(home); back != nil {
		panic(back)
	}
	if err != nil {
		t.Fatal(err)
	}
	return made
}
