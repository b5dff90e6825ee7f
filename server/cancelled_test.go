package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

// waiting is an allocator that waits until its caller hangs up.
type waiting struct{ begun chan struct{} }

func (w waiting) Allocate(ctx context.Context, _ allocator.Request) (*allocator.Result, error) {
	w.begun <- struct{}{}
	<-ctx.Done()
	return nil, fmt.Errorf("wait for the kernel's news: %w", ctx.Err())
}

// A caller that hangs up is no failure of ipamd's: it is counted as cancelled, and one
// that closed its sending side alone is answered so, and not of a witness.
func TestF24HangingUpIsNoFailure(t *testing.T) {
	var mu sync.Mutex
	var observed []api.Code
	begun := make(chan struct{})
	rig := servertest.Start(t, func(c *server.Config) {
		c.Allocator = waiting{begun}
		c.Observe = func(_ string, code api.Code, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			observed = append(observed, code)
		}
	})
	const ask = `{"sandbox":"a"}`
	for i, hangUp := range []func(*net.UnixConn) error{(*net.UnixConn).Close, (*net.UnixConn).CloseWrite} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: rig.Socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/leases HTTP/1.1\r\nHost: ipamd\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(ask), ask)
		<-begun
		if err := hangUp(conn); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, 30*time.Second, "the call to end", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(observed) == i+1
		})
		if i == 0 {
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		var refusal api.Error
		if err := json.NewDecoder(resp.Body).Decode(&refusal); err != nil || refusal.Code != api.DeadlineExceeded || !strings.Contains(refusal.Message, "closed its sending side") {
			t.Errorf("half closed: %+v, %v", refusal, err)
		}
	}
	for _, code := range observed {
		if code != "cancelled" {
			t.Errorf("it is counted as %q", code)
		}
	}
	if n := rig.Log.Count("level=WARN") + rig.Log.Count("level=ERROR"); n != 0 {
		t.Errorf("the log has %d warnings and errors", n)
	}
}
