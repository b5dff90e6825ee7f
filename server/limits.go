package server

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/admission"
)

const (
	callBytes   = 64 << 10 // of a body, that count as a call
	smallAnswer = 64 << 10 // that is not counted: the kernel mostly takes it at once
	refusedWait = 200 * time.Millisecond
)

// maxConns is how many connections may be open: the book, the kernel's sockets
// and the runtime's need files as well.
func (s *Server) maxConns() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return s.cfg.MaxConns // this process has no limit that it could know
	}
	most := int(min(files.Cur/2, math.MaxInt32))
	if most >= s.cfg.MaxConns {
		return s.cfg.MaxConns
	}
	s.cfg.Log.Warn("fewer connections than configured: the process may open too few files",
		"connections", most, "configured", s.cfg.MaxConns, "files", files.Cur, "next", "raise LimitNOFILE, or lower socket.max_connections")
	return max(most, 1)
}

// cost is what a call counts for while it runs.
func cost(c *call) int {
	n := 1
	if c.end.Verb == api.VerbLeases || c.end.Verb == api.VerbChanges {
		n = admission.ListingCost
	}
	if c.r.ContentLength < 0 { // in chunks
		return n + bodyBytes/callBytes
	}
	return n + int(min(c.r.ContentLength, bodyBytes)/callBytes)
}

// slots is how many slots a call of the verb takes, 0 when it waits for none.
// Those that say how the daemon is never wait; and a pass or a diagnosis waits for
// containerd and the kernel.
func slots(v api.Verb) int {
	switch v {
	case api.VerbHealth, api.VerbReady, api.VerbMetrics, api.VerbVersion, api.VerbDoctor, api.VerbReconcile:
		return 0
	case api.VerbLeases, api.VerbChanges:
		return admission.ListingSlots
	}
	return 1
}

// takeSlot waits until the call may run. Its deadline begins here, and its request
// has been read as a whole: net/http notices that a peer hangs up only from
// then on.
func (c *call) takeSlot() (err error) {
	if c.cancel != nil {
		c.cancel()
	}
	c.ctx, c.cancel = context.WithTimeout(c.r.Context(), c.server.cfg.Deadline)
	if n := slots(c.end.Verb); n > 0 {
		if c.slot, err = c.server.admission.Slot(c.ctx, c.peer.Holder, n); err != nil {
			return fmt.Errorf("%s: wait for other calls of the same peer: %w", c.end.Verb, err)
		}
	}
	return nil
}

// endSlot gives the call's slot back, if it has one: it ends, or it is about to
// wait for something that none of its peer's other calls needs to wait for.
func (c *call) endSlot() {
	if c.slot != nil {
		c.slot()
		c.slot = nil
	}
}

// heavy waits until a step of a call that reads much may run.
func (c *call) heavy(ctx context.Context) (end func(), err error) {
	return c.server.heavy(ctx, c.peer.Holder)
}

func (s *Server) heavy(ctx context.Context, h admission.Holder) (end func(), err error) {
	if end, err = s.admission.Heavy(ctx, h); err != nil {
		return nil, fmt.Errorf("wait for other calls that read much: %w", err)
	}
	return end, nil
}

// linger lets a refused call wait before its answer: a peer that asks again at
// once, whatever it is answered, would otherwise have the processors that its rate
// leaves to others. Meanwhile its connection is as spare as one without a call.
func (c *call) linger() {
	if conn := connOf(c.r); conn != nil {
		conn.End()
	}
	wait := time.NewTimer(refusedWait)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-c.r.Context().Done():
	case <-c.draining():
	}
}

// shared makes an answer for all that ask for it, encoded once.
func (s *Server) shared(read func(context.Context) (any, error)) *admission.Shared {
	return admission.NewShared(s.cfg.Deadline, func(ctx context.Context) ([]byte, error) {
		end, err := s.heavy(ctx, admission.Unidentified)
		if err != nil {
			return nil, err
		}
		defer end()
		reply, err := read(ctx)
		if err != nil {
			return nil, err
		}
		var buf bytes.Buffer
		err = encodeInto(&buf, reply)
		return buf.Bytes(), err
	})
}

// read answers with the next reading.
func (c *call) read(of *admission.Shared) (int, any, error) {
	c.endSlot() // it waits for what others ask, too
	body, err := of.Join(c.ctx)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, encoded(body), nil
}
