package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/api"
)

// These start this program over as the other side of an echo: one that only
// answers, and one that makes a page durable before it does.
const (
	echoVerb    = "echo"
	durableVerb = "durable-echo"
)

// An echo takes the yardsticks R and E64: what a process that answers JSON
// over a unix socket costs when it does nothing else.
type echo struct {
	server *exec.Cmd
	client *http.Client
}

func newEcho(dir, verb string) (*echo, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, verb+".sock")
	e := &echo{server: exec.Command(self, verb, socket)}
	e.server.Stderr = os.Stderr
	e.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 64, // as package client
		DisableCompression:  true,
	}}
	if err := e.server.Start(); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(patience)
	for {
		err := e.call(context.Background())
		if err == nil {
			return e, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(err, e.close())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (e *echo) close() error {
	e.client.CloseIdleConnections()
	if err := e.server.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = e.server.Wait() // it was killed
	return nil
}

// call sends what an allocation asks and reads what it answers.
func (e *echo) call(ctx context.Context) error {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(api.AllocateRequest{Sandbox: "sandbox-0123456789"}); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://echo/", &body)
	if err != nil {
		return err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("echo: %s: %s", resp.Status, answer)
	}
	return json.Unmarshal(answer, new(api.AllocateReply))
}

// otherSide runs the other side of an echo, if the arguments ask for it.
func otherSide(args []string) (asked bool, err error) {
	if len(args) != 3 {
		return false, nil
	}
	switch verb, socket := args[1], args[2]; verb {
	case echoVerb:
		return true, serveEcho(socket, func() error { return nil })
	case durableVerb:
		o, err := newOverwriter(filepath.Dir(socket), durableVerb)
		if err != nil {
			return true, err
		}
		return true, serveEcho(socket, o.write)
	}
	return false, nil
}

// serveEcho answers on the socket until it is killed, each time after work.
func serveEcho(socket string, work func() error) error {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	reply := sampleReply()
	return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask api.AllocateRequest
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := work(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		mine := reply
		mine.Epoch = ask.Sandbox
		body, err := json.Marshal(mine)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body) // a peer that hung up was killed with the run
	}))
}

// sampleReply is as long as the answer to an allocation.
func sampleReply() api.AllocateReply {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	now := time.Now().UTC()
	return api.AllocateReply{
		Leases: []api.Lease{{ID: id, Address: "10.8.64.2", PrefixLen: 16, Pool: "default", PoolUID: id,
			State: api.Reserved, Sandbox: "sandbox-0123456789", UID: "sandbox-0123456789", Interface: "eth0",
			Attempt: 1, Revision: 123456, Created: now, Since: now, BindBy: &now, Reason: "allocated"}},
		Networks: []api.Network{{Bridge: bridgeName, Gateway: "10.8.0.1", MTU: 1500,
			Routes: []api.Route{{Destination: "0.0.0.0/0", Via: "10.8.0.1"}}}},
		Revision: 123456, Epoch: id,
	}
}
