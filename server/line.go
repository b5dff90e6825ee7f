package server

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// lineOf appends the line of a change, as all streams have it, for those who read in an epoch.
//
// It writes what encoding/json makes of the [api.Event], without reflection: a replay encodes
// every change of the history. What is rare is left to the package, and a test compares.
func lineOf(b []byte, c *ipam.Change, epoch string) ([]byte, error) {
	if c.Subject == ipam.OfPool {
		change := poolChangeOf(*c)
		line, err := asJSON(api.Event{Type: api.EventChange, Kind: api.KindPool, Change: &change, Revision: c.Rev, Epoch: epoch})
		return append(append(b, line...), '\n'), err
	}
	b = appendText(b, `{"type":"`+string(api.EventChange)+`","kind":`, string(c.Subject))
	b = strconv.AppendInt(append(b, `,"change":{"revision":`...), c.Rev, 10)
	b = c.At.Wall.UTC().AppendFormat(append(b, `,"at":"`...), time.RFC3339Nano)
	b = append(b, `","address":"`...)
	if c.Addr.IsValid() {
		b = c.Addr.AppendTo(b)
	}
	b = append(b, '"')
	if c.PrefixLen != 0 {
		b = strconv.AppendInt(append(b, `,"prefix_length":`...), int64(c.PrefixLen), 10)
	}
	b = appendText(b, `,"lease_id":`, c.LeaseID)
	b = appendText(b, `,"pool":`, c.Pool)
	b = appendText(b, `,"sandbox":`, c.Sandbox)
	b = appendText(b, `,"uid":`, c.UID)
	b = appendText(b, `,"interface":`, c.Interface)
	b = strconv.AppendInt(append(b, `,"attempt":`...), c.Attempt, 10)
	b = appendText(b, `,"from":`, string(c.From))
	b = appendText(b, `,"to":`, string(c.To))
	b = appendText(b, `,"actor":`, string(c.Who.Actor))
	if c.Who.Peer != "" {
		b = appendText(b, `,"peer":`, c.Who.Peer)
	}
	b = appendText(b, `,"reason":`, c.Who.Reason)
	if c.Who.Note != "" {
		b = appendText(b, `,"note":`, c.Who.Note)
	}
	if seen := evidence(c.Evidence); len(seen) > 0 {
		text, err := asJSON(seen)
		if err != nil {
			return b, err
		}
		b = append(append(b, `,"evidence":`...), text...)
	}
	b = strconv.AppendInt(append(b, `},"revision":`...), c.Rev, 10)
	return append(appendText(b, `,"epoch":`, epoch), "}\n"...), nil
}

// appendText appends what is before a text, and the text in quotes.
func appendText(b []byte, before, text string) []byte {
	b = append(b, before...)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			quoted, _ := asJSON(text) // any text can be
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// asJSON is what encoding/json makes of a value, without the end of the line.
func asJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	err := encodeInto(&buf, v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}
