package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// apart runs the built program in the world's namespace, and waits until it is ready.
func (w *world) apart(file string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command("nsenter", "--net="+w.ns.Path(), realtest.Program(w.t, "cmd/ipamd"), "run", "--config", file) // nsenter becomes ipamd
	cmd.Stderr = w.log
	must(w.t, cmd.Start())
	realtest.Eventually(w.t, wait, "ipamd to be ready", func() bool { _, err := w.client.Ready(ctx); return err == nil })
	return cmd
}

// killedAt has strace kill the program when one of its threads makes a system call for the
// nth time from now on, and returns when strace watches it.
func (w *world) killedAt(pid int, call string, nth int) (ended func()) {
	w.t.Helper()
	cmd := exec.Command("strace", "-f", "-p", strconv.Itoa(pid), "-e", "trace="+call, "-e", "inject="+call+":signal=SIGKILL:when="+strconv.Itoa(nth))
	output := new(logBuffer)
	cmd.Stderr = output
	must(w.t, cmd.Start())
	realtest.Eventually(w.t, wait, "strace to be attached", func() bool { return bytes.Contains([]byte(output.String()), []byte("attached")) })
	return func() { _ = cmd.Wait() } // with the end of what it watches
}

// E3: ipamd is killed while it binds, and while it confirms a removal: as it writes the book,
// as it syncs it, as it speaks to the kernel. After the next start the rules are those of the
// book, whichever of the two had come first; and no port of another lease is without its
// rules for a moment.
func TestE3KilledBetweenBookAndKernel(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "strace", "nsenter", "nft")
	w := prepare(t, quick, enforced, dropUnleased)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	file := filepath.Join(t.TempDir(), "ipamd.toml")
	var text bytes.Buffer
	must(t, w.cfg.Write(&text))
	must(t, os.WriteFile(file, text.Bytes(), 0o600))
	daemon := w.apart(file)
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
	}()

	// A port that may not send this says it all the time, and its peer receives nothing.
	_, at := w.plugIn("restless")
	_, peer := w.plugIn("peer")
	ear := peer.NS.Wire("eth0")
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	spoof := nstest.Frame(all, net.HardwareAddr{2, 0, 0, 0, 0, 0x99}, 0x0806, make([]byte, 46)...)
	running, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan int, 1)
	out := at.NS.Wire("eth0")
	go func() {
		n := 0
		for ; running.Err() == nil; n++ {
			out.Send(spoof)
			time.Sleep(200 * time.Microsecond)
		}
		sent <- n
	}()

	for i, at := range []struct {
		call string
		nth  int
	}{{"pwrite64", 1}, {"fsync", 1}, {"sendmsg", 1}, {"sendmsg", 2}, {"sendmsg", 3}} {
		for _, ending := range []bool{false, true} {
			step := fmt.Sprintf("%+v, ending %v", at, ending)
			l := w.allocate(fmt.Sprintf("s%d-%v", i, ending)).Leases[0]
			p := w.ns.Port("rt0", l.Address+"/24")
			where := api.BindRequest{HostInterface: p.HostName, Netns: p.NS.Path(), MAC: p.MAC.String()}
			if ending {
				if _, err := w.client.Bind(ctx, l.ID, where); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				w.ns.Exec("ip", "link", "set", p.HostName, "nomaster")
				p.DelAddr(l.Address + "/24")
			}
			ended := w.killedAt(daemon.Process.Pid, at.call, at.nth)
			short, cancel := context.WithTimeout(ctx, wait)
			var err error
			if ending {
				_, err = w.client.Release(short, l.ID, api.ReleaseRequest{Wait: "10s"})
			} else {
				_, err = w.client.Bind(short, l.ID, where)
			}
			cancel()
			if err == nil { // no thread made so many: it is killed behind the answer
				_ = daemon.Process.Kill()
			}
			_ = daemon.Wait() // it was killed
			ended()
			t.Logf("%s: its caller was answered %v", step, err)
			daemon = w.apart(file)
			if !ending { // what was not answered is asked again
				if _, err := w.client.Bind(ctx, l.ID, where); err != nil {
					t.Errorf("%s: bind again: %v", step, err)
				}
				if !w.ruled(p, l.Address) {
					t.Errorf("%s: bound, and not ruled", step)
				}
			}
			realtest.Eventually(t, wait, step+": the rules to be those of the book", func() bool {
				r, err := w.client.Rules(ctx, "")
				return err == nil && r.Held && len(r.Differences) == 0
			})
			if ending {
				if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil && w.state(l.Address) == api.Releasing {
					t.Errorf("%s: release again: %v", step, err)
				}
				realtest.Eventually(t, wait, step+": the release to be confirmed", func() bool {
					now := w.state(l.Address)
					if ruled := w.ruled(p, l.Address); ruled && now != api.Releasing && w.state(l.Address) != api.Releasing && w.state(l.Address) != api.Bound {
						t.Fatalf("%s: it is %s, and ruled", step, now)
					}
					return now != api.Releasing && now != api.Bound
				})
				if w.ruled(p, l.Address) {
					t.Errorf("%s: it has ended, and is ruled", step)
				}
			}
		}
	}
	stop()
	if n := <-sent; n < 100 {
		t.Errorf("only %d spoofed frames were sent", n)
	}
	for {
		frame, ok := ear.Receive(50 * time.Millisecond)
		if !ok {
			break
		}
		if bytes.Equal(frame[6:12], spoof[6:12]) {
			t.Fatal("a peer received a spoofed frame")
		}
	}
}
