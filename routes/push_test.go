package routes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// T10: a push with one bad field is refused whole, with the field named, and the table
// is as it was.
func TestT10MalformedPushes(t *testing.T) {
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
	before := table.Status().String()
	good := `{"address":"10.8.0.6","lease_id":"l","sandbox":"b","uid":"u","to":"bound","revision":9}`
	with := func(old, new string) string {
		return `{"epoch":"e1","changes":[` + good + "," + strings.Replace(good, old, new, 1) + "]}"
	}
	for body, field := range map[string]string{
		with(`"uid":"u",`, ``):                                     "changes[1].uid",
		with(`"lease_id":"l",`, ``):                                "changes[1].lease_id",
		with(`"sandbox":"b",`, ``):                                 "changes[1].sandbox",
		with(`"b"`, `"`+strings.Repeat("b", 254)+`"`):              "changes[1].sandbox",
		with(`"revision":9`, `"revision":0`):                       "changes[1].revision",
		with(`"revision":9`, `"revision":"abc"`):                   "/changes/1/revision",
		with(`"to":"bound",`, ``):                                  "changes[1].to",
		with(`"bound"`, `"`+strings.Repeat("b", 33)+`"`):           "changes[1].to",
		with(`"u"`, `"`+strings.Repeat("u", 254)+`"`):              "changes[1].uid",
		with(`"l"`, `"`+strings.Repeat("l", 65)+`"`):               "changes[1].lease_id",
		with(`:9`, `:9,"interface":"eth0123456789012"`):            "changes[1].interface",
		with(`:9`, `:9,"attempt":-7`):                              "changes[1].attempt",
		with(`:9`, `:9,"prefix_length":-7`):                        "changes[1].prefix_length",
		with(`:9`, `:9,"prefix_length":33`):                        "changes[1].prefix_length",
		with(`:9`, `:-9,"prefix_length":30`):                       "changes[1].revision",
		`{"epoch":"` + strings.Repeat("e", 65) + `","changes":[]}`: "epoch",
		with(`10.8.0.6`, `10.8.0.300`):                             "changes[1].address",
		with(`10.8.0.6`, `::ffff:10.8.0.6`):                        "changes[1].address",
		with(`"uid"`, `"UID"`):                                     "/changes/1/UID",
		`{"changes":[` + good + `]}`:                               "epoch",
		`{"epoch":"e1","changes":[` + good + `]} {}`:               "body",
		`{"epoch":"e1","changes":[` + good:                         "body",
		``:                                                         "body",
		`{"epoch":"e1","changes":[` + "\"\xff\"" + `]}`:            "body",
		`{"epoch":"e1","pad":"` + strings.Repeat("x", 2<<20):       "",
	} {
		w := httptest.NewRecorder()
		table.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		var e api.Error
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		want := http.StatusBadRequest
		if field == "" {
			want = http.StatusRequestEntityTooLarge
		}
		if got, _ := e.Details["field"].(string); w.Code != want || got != field || e.Code != api.InvalidArgument {
			t.Errorf("%.120s: %d, field %q, %s", body, w.Code, got, e.Message)
		}
		if after := table.Status().String(); after != before {
			t.Fatalf("%.120s: the table became %s", body, after)
		}
	}
	w := httptest.NewRecorder()
	table.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d", w.Code)
	}
}

func TestPushOverHTTP(t *testing.T) {
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
	body := `{"epoch":"e1","changes":[
		{"address":"10.8.0.6","lease_id":"l","sandbox":"b","uid":"u","to":"bound","revision":9},
		{"address":"10.8.0.5","to":"cooling","revision":7},
		{"address":"10.8.0.7","lease_id":"m","sandbox":"c","uid":"u","to":"bound","revision":4}]}`
	for _, newer := range []int{2, 0} {
		w := httptest.NewRecorder()
		table.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		var reply PushReply
		if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != http.StatusOK {
			t.Fatal(w.Code, err)
		}
		if want := (PushReply{newer, epoch, 5}); reply != want {
			t.Errorf("%+v, and should be %+v", reply, want)
		}
	}
	at(t, table, "a", "")
	at(t, table, "b", "10.8.0.6")
	at(t, table, "c", "")
}

// T10: a cancelled attempt is in the stream, and has no address: what comes with it is
// taken in.
func TestT10ACancelledAttemptIsInTheStream(t *testing.T) {
	table := listed(t, 5)
	w := httptest.NewRecorder()
	table.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"epoch":"e1","changes":[
		{"address":"","lease_id":"","sandbox":"","uid":"x","attempt":1,"from":"free","to":"cancelled","revision":8},
		{"address":"10.8.0.6","lease_id":"l","sandbox":"b","uid":"u","to":"bound","revision":9}]}`)))
	if w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	at(t, table, "b", "10.8.0.6")
}
