package routes

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/ipamd/ipamd/api"
)

// longestPush is the longest body of a push, in bytes.
const longestPush = 1 << 20

// A PushRequest is what a peer posts: changes, each as the stream has it, in any order.
type PushRequest struct {
	Epoch   string       `json:"epoch"`
	Changes []api.Change `json:"changes"`
}

// A PushReply says what became of them. The rest was no news.
type PushReply struct {
	Newer    int    `json:"newer"`
	Epoch    string `json:"epoch"` // of the table; when it is another, the changes wait for a list of theirs
	Revision int64  `json:"revision"`
}

// ServeHTTP takes a [PushRequest] by POST. A request with one bad field is refused
// whole, with the field named. It believes what it is sent: put it behind whatever
// keeps strangers out.
func (t *Table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply, err := t.takePush(w, r)
	s := t.Status()
	var body any = reply
	code := http.StatusOK
	if err != nil {
		e := &api.Error{Code: api.InvalidArgument, Message: err.Error(), Epoch: s.Epoch, Revision: s.Revision}
		if bad := new(FieldError); errors.As(err, &bad) {
			e.Details = map[string]any{"field": bad.Field}
		}
		code = e.Code.Status()
		switch {
		case errors.Is(err, errMethod):
			w.Header().Set("Allow", http.MethodPost)
			code = http.StatusMethodNotAllowed
		case errors.As(err, new(*http.MaxBytesError)):
			code = http.StatusRequestEntityTooLarge
		case errors.Is(err, ErrFull):
			e.Code, e.Retryable = api.TooManyRequests, true
			code = e.Code.Status()
			w.Header().Set("Retry-After", "1")
		}
		body = e
	} else {
		reply.Epoch, reply.Revision = s.Epoch, s.Revision
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.MarshalWrite(w, body) // a peer that has gone needs no answer
}

var errMethod = errors.New("changes are pushed by POST")

func (t *Table) takePush(w http.ResponseWriter, r *http.Request) (*PushReply, error) {
	if r.Method != http.MethodPost {
		return nil, errMethod
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestPush))
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	var req PushRequest
	if err := json.Unmarshal(data, &req, json.RejectUnknownMembers(true)); err != nil {
		if bad := new(json.SemanticError); errors.As(err, &bad) && bad.JSONPointer != "" {
			return nil, &FieldError{string(bad.JSONPointer), err.Error()}
		}
		return nil, &FieldError{"body", err.Error()}
	}
	if req.Epoch == "" {
		return nil, &FieldError{"epoch", "is missing"}
	}
	if len(req.Epoch) > longestID {
		return nil, &FieldError{"epoch", fmt.Sprintf("has %d bytes; at most %d are known", len(req.Epoch), longestID)}
	}
	routes := make([]Route, 0, len(req.Changes))
	for i, c := range req.Changes {
		if c.To == api.Cancelled && c.Address == "" {
			continue // of an attempt, not of an address
		}
		route, err := OfChange(c)
		if err == nil && (c.PrefixLength < 0 || c.PrefixLength > route.Addr.BitLen()) {
			err = &FieldError{"prefix_length", fmt.Sprintf("%d is none of %s", c.PrefixLength, route.Addr)}
		}
		if err != nil {
			if bad := new(FieldError); errors.As(err, &bad) {
				if bad.Field == "state" {
					bad.Field = "to" // as a change has it
				}
				bad.Field = fmt.Sprintf("changes[%d].%s", i, bad.Field)
			}
			return nil, err
		}
		if c.PrefixLength == 0 { // else it is delegated, and no sandbox's own
			routes = append(routes, route)
		}
	}
	reply := &PushReply{}
	for _, r := range routes {
		newer, err := t.Push(req.Epoch, r)
		if err != nil {
			return nil, err
		}
		if newer {
			reply.Newer++
		}
	}
	return reply, nil
}
