package server_test

import (
	"bufio"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/servertest"
)

// A pause with a policy is shown with its lease; a wake is reported on the stream before the runtime
// acknowledges it, and both before the lease is bound.
func TestAWakeOnTheSocket(t *testing.T) {
	t.Parallel()
	s := speak(t, servertest.Start(t))
	path := "/v1/leases/" + allocate(t, s, "a").ID
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/bind", `{"host_interface":"veth1"}`)
	if l := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/pause", `{"mode":"hibernate"}`).Lease; l.State != api.Paused || l.Sleep == nil || l.Sleep.Mode != api.Hibernate {
		t.Errorf("paused: %+v", l)
	}
	lines := bufio.NewReader(stream(t, s.Socket, "").Body)
	line(t, lines) // from here on
	asked := want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", path+"/wake", "").Lease
	f := asked.Sleep.Flight
	if asked.State != api.Paused || f == nil || f.Phase != "requested" || f.Cause.By != "api" {
		t.Fatalf("asked: %+v", asked.Sleep)
	}
	if again := want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", path+"/wake", "").Lease; again.Revision != asked.Revision || again.Sleep.Flight.ID != f.ID {
		t.Errorf("asked again: %+v", again.Sleep.Flight)
	}
	fail := func(status int, code api.Code, path, body string) {
		t.Helper()
		if a := s.ask(t, "POST", path, body); a.status != status || a.err.Code != code || a.err.Retryable != code.Retryable() {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, code)
		}
	}
	fail(504, api.WakeTimeout, path+"/wake", `{"wait":"20ms"}`)
	fail(404, api.NotFound, path+"/wake/ack", `{"flight":"other","outcome":"woken"}`)
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/wake/ack", `{"flight":"`+f.ID+`","outcome":"waking"}`)
	if l := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/wake/ack", `{"flight":"`+f.ID+`","outcome":"woken"}`).Lease; l.State != api.Bound || l.Sleep.Flight.Result != "woken" || l.Sleep.Flight.Ended == nil {
		t.Errorf("woken: %+v", l.Sleep.Flight)
	}
	fail(409, api.StateNotAllowed, path+"/wake/ack", `{"flight":"`+f.ID+`","outcome":"refused"}`)
	for _, reason := range []string{"wake_requested", "waking", "woken"} {
		if e := change(t, lines); e.Change.Reason != reason || (e.Change.To == api.Bound) != (reason == "woken") {
			t.Errorf("the stream has %+v, want %s", e.Change, reason)
		}
	}
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/wake", "")
}
