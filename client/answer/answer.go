// Package answer says what the daemon's answers mean to the caller that asked: which error a
// refusal is, and what an answer that never came means. It does not know how they travel, and
// pulls in no HTTP: a program that lives for one call may be built on it.
package answer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A Class is a sentinel for [errors.Is]: one for each [api.Code].
type Class api.Code

func (c Class) Error() string { return string(c) }

// NotRunning means that nothing listens on the socket.
const NotRunning = Class("not_running")

// A Failure is a call that was not a success: what was asked, in words, the class, and what
// is below it. [errors.Is] finds both.
type Failure struct {
	doing string
	class Class
	below error         // *api.Error, or what the transport says
	text  string        // what is below, in words; "" where that says it well
	After time.Duration // the daemon's Retry-After; 0 without one
}

// Fail is a failure of a class.
func Fail(doing string, class Class, below error) *Failure {
	return &Failure{doing: doing, class: class, below: below}
}

func (f *Failure) Error() string {
	return f.doing + ": " + cmp.Or(f.text, f.said())
}

// said is the text below without the words that doing has: the daemon names
// the verb, and often the noun, as well.
func (f *Failure) said() string {
	e := new(api.Error)
	if !errors.As(f.below, &e) {
		return f.below.Error()
	}
	verb, _, _ := strings.Cut(f.doing, " ")
	rest, named := strings.CutPrefix(e.Message, f.doing+": ")
	if !named {
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, verb+": "), verb+" ")
	}
	return (&api.Error{Code: e.Code, Message: rest}).Error()
}

// Unwrap is for [errors.Is] and [errors.As].
func (f *Failure) Unwrap() []error { return []error{f.class, f.below} }

// Read decodes the body of a success.
func Read(doing string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return Unread(doing, err)
	}
	return nil
}

// Unread is an answer whose body did not come whole, or is none of ipamd's.
func Unread(doing string, err error) error {
	return fmt.Errorf("%s: read the reply: %w", doing, err)
}

// Refusal reads the daemon's own error. status is as in "404 Not Found", and after the
// header Retry-After, which may be "".
func Refusal(doing, status, after string, body []byte) error {
	said := new(api.Error)
	if err := json.Unmarshal(body, said); err != nil || said.Code == "" {
		return Fail(doing, Class(api.Internal), fmt.Errorf("the answer is %q without an error of ipamd's", status))
	}
	f := Fail(doing, Class(said.Code), said)
	seconds, _ := strconv.Atoi(after) // absent: 0
	f.After = time.Duration(seconds) * time.Second
	return f
}

// Unreached says what a call means that never reached a daemon, or whose answer was lost.
func Unreached(doing, socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &Failure{doing: doing, class: NotRunning, below: err,
			text: "nothing listens on " + socket + "; is ipamd running?"}
	case errors.Is(err, fs.ErrPermission):
		return &Failure{doing: doing, class: Class(api.PermissionDenied), below: err,
			text: "permission denied on " + socket + "; root may open it, and its group, by default ipamd"}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Health reads whether the daemon is healthy or ready. Of an unavailable one the body has the
// reasons, and both are returned: the body, and an error of class [api.NotReady].
func Health(doing, status, after string, body []byte) (*api.Health, error) {
	ok, unavailable := strings.HasPrefix(status, "200 "), strings.HasPrefix(status, "503 ")
	if !ok && !unavailable {
		return nil, Refusal(doing, status, after, body)
	}
	h := new(api.Health)
	if err := Read(doing, body, h); err != nil {
		return nil, err
	}
	if !ok {
		return h, Fail(doing, Class(api.NotReady), fmt.Errorf("not ready: %s", strings.Join(h.Reasons, "; ")))
	}
	return h, nil
}
