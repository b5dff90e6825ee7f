package server_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/servertest"
)

// Which leases are outside follows from the pool as it is, so no change of the stream has
// it: each change of a pool is one event of the kind pool, with what the pool is from then
// on, and a listing behind it has each lease as it is. A replay is what was sent live, to the
// byte, whatever the pool has become since.
func TestAPoolsChangeReachesItsWatchers(t *testing.T) {
	rig := servertest.Start(t)
	s := speak(t, rig)
	l := want[api.AllocateReply](t, s, 201, "AllocateReply", "POST", "/v1/leases", `{"sandbox":"far","address":"10.8.64.200"}`).Leases[0]
	uid, from := described(t, s).UID, rig.Book.Rev()
	query := fmt.Sprintf("epoch=%s&since=%d&kinds=lease,attempt,pool,book", rig.Book.Epoch(), from)
	lines, sent := bufio.NewReader(stream(t, rig.Socket, query).Body), ""
	event := func() api.Event {
		t.Helper()
		for {
			text, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if e := read(t, text); e.Type == api.EventChange {
				sent += text
				return e
			}
		}
	}
	for _, step := range []struct {
		method, path, body string
		reason             string
		now                api.Described
		outside            bool
	}{
		{"PUT", defaultPool, `{"prefix":"10.8.64.0/25","drain":true}`, "pool_changed", api.Described{Generation: 2, Prefix: "10.8.64.0/25", State: api.PoolActive}, true},
		{"PUT", defaultPool, `{"prefix":"10.8.64.0/24"}`, "pool_changed", api.Described{Generation: 3, Prefix: "10.8.64.0/24", State: api.PoolActive}, false},
		{"PUT", defaultPool, `{"prefix":"10.8.64.0/24","exclude":["10.8.64.200"],"drain":true}`, "pool_changed", api.Described{Generation: 4, Prefix: "10.8.64.0/24", State: api.PoolActive}, true},
		{"POST", defaultPool + "/drain", fmt.Sprintf(`{"uid":%q}`, uid), "pool_draining", api.Described{Generation: 5, Prefix: "10.8.64.0/24", State: api.PoolDraining}, true},
		{"PUT", defaultPool, `{"prefix":"10.8.64.0/23"}`, "pool_changed", api.Described{Generation: 6, Prefix: "10.8.64.0/23", State: api.PoolActive}, false},
	} {
		altered(t, s, step.method, step.path, step.body)
		e := event()
		if step.now.UID = uid; e.Kind != api.KindPool || e.Change.Pool != "default" || e.Change.Reason != step.reason || e.Change.Evidence != nil || !cmp.Equal(e.Change.Described, &step.now) {
			t.Errorf("%s %s: %+v, %+v", step.method, step.body, e.Change, e.Change.Described)
		}
		if list := want[api.LeaseList](t, s, 200, "LeaseList", "GET", "/v1/leases", ""); list.Revision < e.Revision || len(list.Leases) != 1 || (list.Leases[0].Outside != "") != step.outside {
			t.Errorf("behind %s: %+v", step.body, list)
		}
	}
	want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", "/v1/leases/"+l.ID+"/release", "")
	rig.Confirm(t, l.ID)
	altered(t, s, "DELETE", defaultPool+"?uid="+uid, "")
	for e := event(); e.Kind != api.KindPool; e = event() {
		if e.Change.LeaseID != l.ID || e.Change.Described != nil {
			t.Errorf("%+v", e.Change)
		}
	}
	if !strings.Contains(sent, `"reason":"pool_removed","described":{"uid":"`+uid+`","generation":6,"prefix":"10.8.64.0/23","state":"removed"}`) {
		t.Error(sent)
	}

	again := ""
	for lines := bufio.NewReader(io.LimitReader(stream(t, rig.Socket, query).Body, 1<<20)); len(again) < len(sent); {
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if read(t, text).Type == api.EventChange {
			again += text
		}
	}
	if d := cmp.Diff(sent, again); d != "" {
		t.Errorf("a replay (-live +again):\n%s", d)
	}
}
