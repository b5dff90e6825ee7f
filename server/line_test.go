package server

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// A line of the stream is what encoding/json says of its event, whatever is in the change:
// every field of it, empty and not, with text that has to be quoted, and text that is none.
func TestALineIsAsJSONSaysIt(t *testing.T) {
	texts := rapid.OneOf(rapid.SampledFrom([]string{"", "eth0", `a"b\c`, "<&>", "\x00\x1f\x7f", "\u2028é", "\xff\xfe"}), rapid.String())
	fields := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		text := func(label string) string { return texts.Draw(rt, label) }
		c := ipam.Change{
			Rev: rapid.Int64().Draw(rt, "revision"), Subject: ipam.Subject(rapid.OneOf(texts, rapid.Just(string(ipam.OfPool))).Draw(rt, "subject")), LeaseID: text("lease"), PoolUID: text("pool uid"), Pool: text("pool"),
			Sandbox: text("sandbox"), UID: text("uid"), Interface: text("interface"), Attempt: rapid.Int64().Draw(rt, "attempt"),
			From: ipam.State(text("from")), To: ipam.State(text("to")),
			Who: ipam.Who{Actor: ipam.Actor(text("actor")), Peer: text("peer"), Reason: text("reason"), Note: text("note")},
		}
		c.At.Wall = time.Unix(0, rapid.Int64().Draw(rt, "at"))
		c.Addr = rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("fd00::2")}).Draw(rt, "address")
		c.PrefixLen = rapid.SampledFrom([]int{0, 28, 80}).Draw(rt, "prefix length")
		c.Evidence = json.RawMessage(rapid.SampledFrom([]string{"", "[]", "null", "broken", `[{"witness":"probe","note":"<a>"}]`,
			`[{"generation":7,"state":"draining","prefix":"10.8.64.0/25"}]`}).Draw(rt, "evidence"))
		change := changeOf(c)
		var want bytes.Buffer
		if err := encodeInto(&want, api.Event{Type: api.EventChange, Kind: api.Kind(c.Subject), Change: &change, Revision: c.Rev, Epoch: "e"}); err != nil {
			rt.Fatal(err)
		}
		got, err := lineOf([]byte("before"), &c, "e")
		if err != nil {
			rt.Fatal(err)
		}
		// The kind of a change is never empty.
		if c.Subject != "" && string(got) != "before"+want.String() {
			rt.Fatalf("the line is\n%s, and should be\n%s", got, want.String())
		}
		for v, i := reflect.ValueOf(change), 0; i < v.NumField(); i++ {
			if !v.Field(i).IsZero() {
				fields[v.Type().Field(i).Name] = true
			}
		}
	})
	for i := range reflect.TypeFor[api.Change]().NumField() {
		if name := reflect.TypeFor[api.Change]().Field(i).Name; !fields[name] {
			t.Errorf("no change had %s", name)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	c := ipam.Change{Rev: 1 << 40, Subject: ipam.OfLease, LeaseID: "0192f0c1-2b1f-7e55-9d0a-2d6f6b1f0001", Pool: "default", Sandbox: "sandbox-000001",
		UID: "sandbox-000001", Interface: "eth0", Attempt: 1, From: ipam.Reserved, To: ipam.Bound, Addr: netip.MustParseAddr("10.8.64.2"),
		Who: ipam.Who{Actor: ipam.ByClient, Peer: "uid 0", Reason: "bound"}}
	c.At.Wall = time.Unix(1_790_000_000, 123_456_789)
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		line, _ = lineOf(line[:0], &c, "0192f0c1-2b1f-7e55-9d0a-2d6f6b1f0001")
	}
}
