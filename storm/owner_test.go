package storm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An owner answers which sandboxes live. Its word about one is the truth; what else it
// says may be anything.
type owner struct {
	mu    sync.Mutex
	lives map[string]bool
	lie   func(w http.ResponseWriter, r *http.Request) bool // in place of an answer; nil: none
}

// newOwner listens on the owner's socket.
func newOwner(t *testing.T, socket string) *owner {
	t.Helper()
	// Those whose labels hostile tenants use have no containers that may be ended.
	o := &owner{lives: map[string]bool{"hostile": true, "db-primary": true}}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // an impostor may have the name
	s := &http.Server{Handler: o}
	s.SetKeepAlivesEnabled(false) // each question is a connection, to the process that has the name
	t.Cleanup(func() { s.Close() })
	go s.Serve(l) // ends with it
	return o
}

// set says whether a sandbox lives from now on.
func (o *owner) set(sandbox string, lives bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lives {
		o.lives[sandbox] = true
	} else {
		delete(o.lives, sandbox)
	}
}

type verdict struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

func (o *owner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	lie := o.lie
	o.mu.Unlock()
	if lie != nil && lie(w, r) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	id, one := strings.CutPrefix(r.URL.Path, "/sandboxes/")
	switch {
	case one && o.lives[id]:
		_ = json.NewEncoder(w).Encode(verdict{id, "valid"})
	case one:
		_ = json.NewEncoder(w).Encode(verdict{id, "gone"})
	default:
		list := make([]verdict, 0, len(o.lives))
		for id := range o.lives {
			list = append(list, verdict{id, "valid"})
		}
		_ = json.NewEncoder(w).Encode(list)
	}
}

// strayOwner has the owner say what is not true of all, or nothing in time. That
// a sandbox is gone it says of none that lives: that is what it is believed in.
func (h *hostile) strayOwner(ctx context.Context) error {
	list := func(r *http.Request) bool { return r.URL.Path == "/sandboxes" }
	lies := []func(w http.ResponseWriter, r *http.Request) bool{
		func(w http.ResponseWriter, r *http.Request) bool { // nobody
			if list(r) {
				fmt.Fprint(w, "[]")
			}
			return list(r)
		},
		func(w http.ResponseWriter, r *http.Request) bool { // few
			if list(r) {
				fmt.Fprint(w, `[{"id":"db-primary","state":"valid"}]`)
			}
			return list(r)
		},
		func(w http.ResponseWriter, r *http.Request) bool { // another, by name
			if !list(r) {
				fmt.Fprint(w, `{"id":"another","state":"gone"}`)
			}
			return !list(r)
		},
		func(w http.ResponseWriter, r *http.Request) bool { // half
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `[{"id":"db-primary","state":"va`)
			return true
		},
		func(w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true },
		func(w http.ResponseWriter, r *http.Request) bool { // late, and gone
			if list(r) {
				return false
			}
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			time.Sleep(ownerTimeout + 100*time.Millisecond)
			_ = json.NewEncoder(w).Encode(verdict{strings.TrimPrefix(r.URL.Path, "/sandboxes/"), "gone"})
			return true
		},
	}
	set := func(lie func(http.ResponseWriter, *http.Request) bool) {
		h.owner.mu.Lock()
		defer h.owner.mu.Unlock()
		h.owner.lie = lie
	}
	set(lies[h.r.IntN(len(lies))])
	<-ctx.Done()
	set(nil)
	return nil
}

const impostor = "impostor of the owner met"

// impostor listens in place of the owner as another user, to say that all are gone, as
// slowly as it may. It is asked nothing.
func (h *hostile) impostor(ctx context.Context) (err error) {
	h.owners.Lock() // one at a time
	defer h.owners.Unlock()
	slowly := between(h.r, time.Millisecond, ownerTimeout/2)
	socket := h.path("owner", "sock")
	if err := os.Rename(socket, socket+".away"); err != nil {
		return err
	}
	l, err := listenAs(readerUID, socket)
	if err == nil {
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(slowly)
			h.rec.strange("an impostor of the owner was asked for %s", r.URL.Path)
			if id, one := strings.CutPrefix(r.URL.Path, "/sandboxes/"); one {
				_ = json.NewEncoder(w).Encode(verdict{id, "gone"})
				return
			}
			all := []verdict{}
			for _, l := range h.rec.living() {
				all = append(all, verdict{l.uid, "gone"})
			}
			_ = json.NewEncoder(w).Encode(all)
		})}
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				h.rec.counted(impostor)
			}
		}
		go s.Serve(l) // ends with it
		<-ctx.Done()
		err = s.Close()
	}
	if back := os.Rename(socket+".away", socket); back != nil {
		return back
	}
	return err
}

// listenAs listens as another user: the kernel reports the moment of listen.
func listenAs(uid int, socket string) (l net.Listener, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	as := func(uid int) error {
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 { // of this thread
			return e
		}
		return nil
	}
	// Bound by root, who may write to the folder.
	addr, err := net.ResolveUnixAddr("unix", socket)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), addr.Name)
	defer f.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		return nil, err
	}
	if err := as(uid); err != nil {
		return nil, err
	}
	err = syscall.Listen(fd, 64)
	if back := as(0); back != nil {
		panic("storm: no way back to root: " + back.Error())
	}
	if err != nil {
		return nil, err
	}
	return net.FileListener(f)
}
