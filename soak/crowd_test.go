package soak_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// asCrowd makes the test binary a process that holds connections.
const asCrowd = "IPAMD_SOAK_AS_CROWD"

func TestMain(m *testing.M) {
	if socket := os.Getenv(asCrowd); socket != "" {
		if err := gather(socket, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if socket := os.Getenv(asGreedy); socket != "" {
		if err := grab(socket, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// gather holds so many connections until its standard input ends. It asks
// once on each, and opens another for one that is closed, within a second
// before it was answered and within thirty after. It says so when each was
// answered once.
func gather(socket, size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var answered atomic.Int64
	for range n {
		all.Go(func() {
			pause := time.Second
			first := sync.OnceFunc(func() {
				pause = 30 * time.Second
				if answered.Add(1) == int64(n) {
					fmt.Println("all were answered")
				}
			})
			for ctx.Err() == nil {
				hold(ctx, socket, first)
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(pause)):
				}
			}
		})
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	cancel()
	all.Wait()
	return err
}

// hold opens a connection, asks once, and waits until it is closed. That it
// is closed, at any of these, is what a crowd has to expect.
func hold(ctx context.Context, socket string, answered func()) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: ipamd\r\n\r\n"); err != nil {
		return
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return
	}
	answered()
	_, _ = c.Read(make([]byte, 1))
}

// A crowd is a process that holds connections and says nothing on them.
type crowd struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func newCrowd(t testing.TB, d *daemon, size int) *crowd {
	t.Helper()
	c := &crowd{t: t, cmd: exec.Command("/proc/self/exe", strconv.Itoa(size))}
	c.cmd.Env = []string{asCrowd + "=" + d.client.Socket}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	t.Cleanup(c.leave)
	return c
}

// answered waits until each connection was answered once.
func (c *crowd) answered() {
	c.t.Helper()
	const long = 2 * patience // they are many
	stop := time.AfterFunc(long, func() { c.in.Close() })
	defer stop.Stop()
	if _, err := c.out.ReadString('\n'); err != nil {
		c.t.Fatalf("not every connection was answered within %v: %v", long, err)
	}
}

// leave ends it; twice is fine.
func (c *crowd) leave() {
	if c.cmd.ProcessState != nil {
		return
	}
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the crowd: %v", err)
	}
}

// get asks on a connection of its own.
func get(socket, path string) (string, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: ipamd\r\nConnection: close\r\n\r\n", path); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
