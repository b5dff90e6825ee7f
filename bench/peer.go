package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A peer is a process of bench/peers that does with somebody else's allocator
// what it is asked to. Not safe for concurrent use.
type peer struct {
	cmd  *exec.Cmd
	ask  *json.Encoder
	in   io.Closer
	told *json.Decoder
}

// The words of bench/peers, which says what they mean.
type peerRequest struct {
	Do      string        `json:"do"`
	Store   string        `json:"store"`
	Prefix  *netip.Prefix `json:"prefix,omitempty"`
	Taken   int           `json:"taken,omitempty"`
	Calls   int           `json:"calls,omitempty"`
	Most    time.Duration `json:"most,omitempty"`
	Callers int           `json:"callers,omitempty"`
	Long    time.Duration `json:"long,omitempty"`
	Limit   int           `json:"limit,omitempty"`
}

type peerAnswer struct {
	Error   string        `json:"error"`
	Took    sample        `json:"took"`
	Calls   int           `json:"calls"`
	Failed  int           `json:"failed"`
	Elapsed time.Duration `json:"elapsed"`
}

// peerProgram is what `go build` makes of bench/peers.
func (b *bench) peerProgram() string { return filepath.Join(b.peers, "peers") }

// startPeer runs one with a directory of its own below the run's.
func (b *bench) startPeer(name string) (*peer, error) {
	dir := filepath.Join(b.dir, "peer-"+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	p := &peer{cmd: exec.Command(b.peerProgram(), name, dir)}
	p.cmd.Stderr = os.Stderr
	p.cmd.Env = append(os.Environ(), "IP_COOLDOWN_PERIOD=0") // AWS's: else each release leaves a row for 30 s, and slows it
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.ask, p.told = in, json.NewEncoder(in), json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, errors.New("build it first: make peers"))
	}
	return p, nil
}

// do asks for one thing and waits for its end. It ends early only with the
// process, which is killed when the run is called off.
func (p *peer) do(ctx context.Context, r peerRequest) (a peerAnswer, err error) {
	defer context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })()
	if err := p.ask.Encode(r); err != nil {
		return a, err
	}
	if err := p.told.Decode(&a); err != nil {
		return a, errors.Join(context.Cause(ctx), err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// close lets the process end, and ends it when it does not.
func (p *peer) close() error {
	closing := p.in.Close()
	last := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer last.Stop()
	return errors.Join(closing, p.cmd.Wait())
}

// moduleVersion is the version of a module in a program, as built.
func moduleVersion(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read what %s is made of: %w", program, err)
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version, nil
		}
	}
	return "", fmt.Errorf("%s has no %s in it", program, module)
}
