package server

import (
	"context"
	"net/http"
	"net/netip"
	"time"
	"unicode/utf8"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server/admission"
)

// A call is one request on its way through.
type call struct {
	server *Server

	w    http.ResponseWriter
	r    *http.Request
	peer *admission.Peer
	end  *api.Endpoint

	ifMatch bool   // the revision was given as a header
	unread  bool   // the body, or its end, has not been read
	release func() // takes the call off its peer's account; nil before it is on it
	slot    func() // gives its slot back; nil while it has none

	ctx    context.Context    // ends with the call's deadline, or when the peer hangs up
	cancel context.CancelFunc // of ctx

	answering bool      // its answer's head was written
	cut       api.Code  // why the answer ends before its end
	streaming time.Time // of an answer without an end: when it began

	// What it is about, once known: for the log of an internal error.
	lease, address, sandbox string
}

// who names the peer for the record.
func (c *call) who(actor ipam.Actor, reason string) ipam.Who {
	return ipam.Who{Actor: actor, Peer: c.peer.Name, Reason: reason}
}

// operator names the peer of an operator's verb, with its words.
func (c *call) operator(reason, note string) ipam.Who {
	who := c.who(ipam.ByOperator, reason)
	who.Note = note
	return who
}

// leave ends the call for the limits.
func (c *call) leave() {
	c.endSlot()
	if c.cancel != nil {
		c.cancel()
	}
	if c.release != nil {
		c.release()
	}
}

// hungUp reports that the peer closed its side, or all, of the connection.
func (c *call) hungUp() bool {
	select {
	case <-c.draining():
		return false // it is the daemon that stops
	default:
		return c.r.Context().Err() != nil
	}
}

// stopping ends when the server was asked to stop.
func (c *call) stopping() context.Context {
	if ctx, ok := c.r.Context().Value(stoppingKey).(context.Context); ok {
		return ctx
	}
	return context.Background()
}

// draining is closed when the server was asked to stop.
func (c *call) draining() <-chan struct{} { return c.stopping().Done() }

// id is the lease that the path names.
func (c *call) id() (string, error) {
	id := c.r.PathValue("id")
	if !utf8.ValidString(id) {
		return "", field("id", "is not UTF-8")
	}
	c.lease = id
	return id, nil
}

// addr is the address that the path names.
func (c *call) addr() (netip.Addr, error) {
	a, err := address("ip", c.r.PathValue("ip"))
	if err == nil {
		c.address = a.String()
	}
	return a, err
}

// plain refuses what a verb without a body or parameters was given.
func (c *call) plain() error {
	if _, err := c.query(); err != nil {
		return err
	}
	if c.r.ContentLength != 0 {
		return field("body", "%s takes none", c.end.Verb)
	}
	return nil
}
