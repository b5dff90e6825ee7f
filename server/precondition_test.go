package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/servertest"
)

// F7 and F22, as the socket has them: a bind that was delayed behind a younger
// one is refused with the present revision, by body (409) and by header (412);
// its repetition after a lost reply is not; and what a bind leaves out stays.
func TestF7F22BindOnTheSocket(t *testing.T) {
	s := speak(t, servertest.Start(t))
	given := allocate(t, s, "a")
	path := "/v1/leases/" + given.ID
	ask := func(verb, body, ifMatch string) answer {
		t.Helper()
		req, err := http.NewRequest("POST", "http://ipamd"+path+"/"+verb, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if ifMatch != "" {
			req.Header.Set("If-Match", ifMatch)
		}
		return s.do(t, req)
	}
	tag := func(rev int64) string { return fmt.Sprintf("%q", fmt.Sprint(rev)) }
	a := fmt.Sprintf(`{"containers":[{"namespace":"n","id":"a"}],"mac":"02:00:00:00:00:0a","if_revision":%d}`, given.Revision)
	first := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/bind", a)
	again := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/bind", a)
	if again.Lease.Revision != first.Lease.Revision {
		t.Errorf("said again: revision %d, then %d", first.Lease.Revision, again.Lease.Revision)
	}
	if r := ask("bind", `{"containers":[{"namespace":"n","id":"b"}],"mac":"02:00:00:00:00:0b"}`, tag(first.Lease.Revision)); r.status != 200 || r.header.Get("ETag") != tag(first.Lease.Revision+1) {
		t.Fatalf("a younger bind: %d %s, ETag %s", r.status, r.body, r.header.Get("ETag"))
	}
	seen := s.ask(t, "GET", path, "")
	rev := first.Lease.Revision + 1
	if seen.header.Get("ETag") != tag(rev) {
		t.Errorf("the lease has the ETag %s, want %s", seen.header.Get("ETag"), tag(rev))
	}
	for _, late := range []struct {
		verb, body, ifMatch string
		status              int
	}{
		{"bind", a, "", 409},
		{"bind", `{"mac":"02:00:00:00:00:0a"}`, tag(given.Revision), 412},
		{"pause", "", tag(given.Revision), 412},
		{"pause", fmt.Sprintf(`{"if_revision":%d}`, given.Revision), "", 409},
		{"release", "", tag(rev + 7), 412}, // of another epoch
		{"release", fmt.Sprintf(`{"if_revision":%d}`, given.Revision), "", 409},
	} {
		r := ask(late.verb, late.body, late.ifMatch)
		if r.status != late.status || r.err.Code != api.StaleRevision || r.err.Details["revision"] != float64(rev) || r.err.Details["state"] != "bound" {
			t.Errorf("%s %s If-Match %s: %d %s, want %d and revision %d", late.verb, late.body, late.ifMatch, r.status, r.body, late.status, rev)
		}
	}
	for _, wrong := range []string{"7", `"x"`, `W/"7"`, `"1", "2"`, `"0"`} {
		if r := ask("pause", "", wrong); r.status != 400 || r.err.Details["field"] != "If-Match" {
			t.Errorf("If-Match %s: %d %s", wrong, r.status, r.body)
		}
	}
	if r := ask("bind", a, tag(rev)); r.status != 400 || r.err.Details["field"] != "If-Match" {
		t.Errorf("two revisions that differ: %d %s", r.status, r.body)
	}
	bound := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/bind", `{"host_interface":"veth1"}`).Lease
	if len(bound.Containers) != 2 || bound.MAC != "02:00:00:00:00:0b" || bound.HostInterface != "veth1" {
		t.Errorf("a bind of the interface alone left %+v", bound)
	}
	less := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/bind", `{"gone":[{"namespace":"n","id":"a"}]}`).Lease
	if len(less.Containers) != 1 || less.Containers[0].ID != "b" || less.MAC != bound.MAC {
		t.Errorf("what is named as gone leaves %+v", less)
	}
	if r := ask("pause", "", "*"); r.status != 200 {
		t.Errorf("If-Match *: %d %s", r.status, r.body)
	}
}
