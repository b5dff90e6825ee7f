package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

// An overwriter takes the yardstick F: the least that a durable change can
// cost in a directory.
type overwriter struct {
	file *os.File
	page [4096]byte
}

// overwriter makes a file of one page, durable with its length.
func (r *run) overwriter(name string) *overwriter {
	o := &overwriter{file: must(os.Create(filepath.Join(r.dir, name)))}
	r.Cleanup(func() { _ = o.file.Close() })
	check(o.write())
	return o
}

// write overwrites the page in place and waits until it is durable.
func (o *overwriter) write() error {
	o.page[0]++ // not the same page twice
	if _, err := o.file.WriteAt(o.page[:], 0); err != nil {
		return err
	}
	return unix.Fdatasync(int(o.file.Fd()))
}

// An echo takes the yardsticks R and E64: what a process that answers as ipamd does
// costs when it does nothing else. Package client calls it, as it calls ipamd.
type echo struct {
	client *client.Client
	server *exec.Cmd
	file   *overwriter // in that process
}

// echoVerb starts this program over as the echo.
const echoVerb = "echo"

// A call with the second name is answered once a page is durable. Both are as long
// as a sandbox's name.
const (
	plainly = "sandbox-0123456789"
	durably = "durable-0123456789"
)

func (r *run) startEcho() *echo {
	socket := filepath.Join(r.dir, "echo.sock")
	e := &echo{client: &client.Client{Socket: socket}, server: child(must(os.Executable()), echoVerb, socket)}
	e.server.Stderr = os.Stderr
	check(e.server.Start())
	r.Cleanup(func() {
		e.client.CloseIdleConnections()
		_ = e.server.Process.Kill()
		_ = e.server.Wait() // it was killed
	})
	realtest.Eventually(r, patience, "the echo answers", func() bool { return r.echoed(e, plainly)() == nil })
	return e
}

// echoed returns a call of an echo.
func (r *run) echoed(e *echo, name string) func() error {
	return func() error {
		_, err := e.client.Allocate(r.ctx, api.AllocateRequest{Sandbox: name})
		return err
	}
}

// yardF, yardR and yardBoth are the calls that yardsticks are made of: F, R, and an
// echo that does F before it answers.
func (r *run) yardF() call    { return call{do: r.file.write} }
func (r *run) yardR() call    { return call{do: r.echoed(r.echo, plainly)} }
func (r *run) yardBoth() call { return call{do: r.echoed(r.echo, durably)} }

// serveEcho answers on the socket until the process is killed.
func serveEcho(socket string) error {
	e := new(echo)
	r := &run{bench: &bench{dir: filepath.Dir(socket)}}
	if err := r.do(func() { e.file = r.overwriter("echo") }); err != nil {
		return err
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return http.Serve(ln, e)
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ask api.AllocateRequest
	err := json.NewDecoder(r.Body).Decode(&ask)
	if err == nil && ask.Sandbox == durably {
		err = e.file.write()
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(sampleReply(ask.Sandbox))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // a peer that hung up was killed with the run
}

// sampleReply is as long as the answer to an allocation.
func sampleReply(sandbox string) api.AllocateReply {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	now := time.Now().UTC()
	return api.AllocateReply{
		Leases: []api.Lease{{ID: id, Address: "10.8.64.2", PrefixLen: 16, Pool: "default", PoolUID: id,
			State: api.Reserved, Sandbox: sandbox, UID: sandbox, Interface: "eth0",
			Attempt: 1, Revision: 123456, Created: now, Since: now, BindBy: &now, Reason: "allocated"}},
		Networks: []api.Network{{Bridge: bridgeName, Gateway: "10.8.0.1", MTU: 1500,
			Routes: []api.Route{{Destination: "0.0.0.0/0", Via: "10.8.0.1"}}}},
		Revision: 123456, Epoch: id,
	}
}

// processorTime is how long a process has been on any processor, all of its
// threads together, the ended ones too.
func processorTime(pid int) time.Duration {
	const scheduler = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: to the nanosecond, where /proc has 10 ms
	var t unix.Timespec
	check(unix.ClockGettime(int32(^pid<<3|scheduler), &t))
	return time.Duration(t.Nano())
}

// onProcessor is how long fn kept a process busy.
func onProcessor(pid int, fn func()) time.Duration {
	before := processorTime(pid)
	fn()
	return processorTime(pid) - before
}

// resident is how many bytes a process has in memory.
func resident(pid int) float64 {
	statm := must(os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)))
	var size, pages float64
	must(fmt.Sscan(string(statm), &size, &pages))
	return pages * float64(os.Getpagesize())
}
