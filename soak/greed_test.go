package soak_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

// asGreedy makes the test binary a process that allocates and releases.
const asGreedy = "IPAMD_SOAK_AS_GREEDY"

// grab has so many callers allocate and release, as fast as they are answered,
// until its standard input ends. It says so when each was answered once, and
// at the end how many calls were answered.
func grab(socket, size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	c := &client.Client{Socket: socket}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, n)
	var all sync.WaitGroup
	var begun, calls atomic.Int64
	for worker := range n {
		all.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				if _, err := live(c, fmt.Sprintf("g%d-%d", worker, life)); err != nil {
					errs <- err
					return
				}
				calls.Add(2)
				if life == 0 && begun.Add(1) == int64(n) {
					fmt.Println("all were answered")
				}
			}
		})
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	cancel()
	all.Wait()
	close(errs)
	for bad := range errs {
		return bad
	}
	fmt.Println(calls.Load())
	return err
}

// live allocates and releases, and tells how long the first took.
func live(c *client.Client, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	reply, err := c.Allocate(ctx, api.AllocateRequest{Sandbox: name})
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	_, err = c.Release(ctx, reply.Leases[0].ID, api.ReleaseRequest{})
	return took, err
}

// beside is what an allocation takes this process, which makes one sandbox
// after the other, while another one has so many callers.
func beside(t *testing.T, d *daemon, callers int) time.Duration {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", strconv.Itoa(callers))
	cmd.Env = []string{asGreedy + "=" + d.client.Socket}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leave := sync.OnceFunc(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the greedy one: %v", err)
		}
	})
	defer leave()
	out := bufio.NewReader(pipe)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		one, err := live(d.client, fmt.Sprintf("h%d-%d", callers, len(took)))
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, one)
	}
	in.Close()
	theirs, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	leave()
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100].Round(10 * time.Microsecond) }
	t.Logf("beside %3d callers, who made %s calls: %d allocations, p50 %v, p90 %v, p99 %v", callers,
		strings.TrimSpace(theirs), len(took), at(50), at(90), at(99))
	return at(50)
}

// TestGreedyHolder is S2: an allocation beside a process with four hundred
// callers takes about as long as beside one with eight. Without turns it took
// thirty times as long.
func TestGreedyHolder(t *testing.T) {
	if testing.Short() {
		realtest.Lack(t, "-short: it takes ten seconds")
	}
	d := start(t, 1024)
	few, many := patience, patience
	for range 2 { // each by turns, and the better of each
		few = min(few, beside(t, d, 8))
		many = min(many, beside(t, d, 400))
	}
	if many > 8*few {
		t.Errorf("p50 beside 400 callers is %v, and %v beside 8: want 8 times as long at most", many, few)
	}
}
