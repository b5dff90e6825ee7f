package owner_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/owner"
)

// G11: who listens on the owner's socket is believed only as root, as the daemon's own
// user or as one that is configured, and only in folders that no other user may write to.
// Nothing is asked of anybody else.
func TestG11OnlyTheOwnerIsBelieved(t *testing.T) {
	realtest.Root(t)
	const otherUser = 65534
	asked := false
	gone := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = true
		_, _ = w.Write([]byte(`[{"id": "a", "state": "gone"}]`))
	})
	for name, tt := range map[string]struct {
		uid  int // who listens
		make func(t *testing.T, dir string)
		uids []uint32
		says string // "" is believed
	}{
		"root":                                   {0, nil, nil, ""},
		"another user":                           {otherUser, nil, nil, "uid 65534 listens"},
		"a user that is configured":              {otherUser, nil, []uint32{otherUser}, ""},
		"another than is configured":             {otherUser, nil, []uint32{1}, "uid 65534 listens"},
		"in a folder that any user may write to": {0, func(t *testing.T, dir string) { check(t, os.Chmod(dir, 0o777)) }, nil, "any user may write"},
		"in a shared folder":                     {0, func(t *testing.T, dir string) { check(t, os.Chmod(dir, 0o777|os.ModeSticky)) }, nil, "any user may write"},
		"in another user's folder":               {0, func(t *testing.T, dir string) { check(t, os.Chown(dir, otherUser, otherUser)) }, nil, "belongs to uid 65534"},
		"in the configured user's":               {otherUser, func(t *testing.T, dir string) { check(t, os.Chown(dir, otherUser, otherUser)) }, []uint32{otherUser}, ""},
		"below such a folder":                    {0, func(t *testing.T, dir string) { check(t, os.Chmod(filepath.Dir(dir), 0o777)) }, nil, "any user may write"},
		"below a shared folder":                  {0, func(t *testing.T, dir string) { check(t, os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky)) }, nil, ""},
		"in a folder that is not there":          {0, func(t *testing.T, dir string) { check(t, os.RemoveAll(dir)) }, nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "owner")
			check(t, os.Mkdir(dir, 0o777))
			for up := filepath.Dir(dir); up != os.TempDir(); up = filepath.Dir(up) {
				check(t, os.Chmod(up, 0o755))
			}
			check(t, os.Chmod(dir, 0o777))
			socket := filepath.Join(dir, "s")
			l := listenAs(t, tt.uid, socket)
			check(t, os.Chmod(dir, 0o755))
			server := &http.Server{Handler: gone}
			go server.Serve(l) // ends with it
			defer server.Close()
			if tt.make != nil {
				tt.make(t, dir)
			}
			c, err := owner.New(owner.Config{Socket: socket, UIDs: tt.uids, Timeout: 30 * time.Second})
			check(t, err)
			defer c.Close()
			asked = false
			list, err := c.List(t.Context())
			v, _ := c.Look(t.Context(), "a")
			if tt.says == "" {
				if err != nil || len(list) != 1 || list[0].Verdict != watchdog.Gone {
					t.Errorf("it says %+v, %v", list, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.says) || v != watchdog.Unknown || asked {
				t.Errorf("it is believed: %+v, %v, %v; asked %v; want %q", list, v, err, asked, tt.says)
			}
		})
	}
}

// listenAs listens as another user: SO_PEERCRED is of the moment of listen.
func listenAs(t *testing.T, uid int, socket string) net.Listener {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	as := func(uid int) {
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 { // of this thread
			t.Fatal(e)
		}
	}
	as(uid)
	l, err := net.Listen("unix", socket)
	as(0)
	check(t, err)
	return l
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
