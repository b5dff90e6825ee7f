package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// body decodes the request's body into the struct at into. An empty body is
// an empty object.
func (c *call) body(into any) error {
	if _, err := c.query(); err != nil {
		return err
	}
	if c.r.ContentLength == 0 {
		return nil
	}
	if c.r.ContentLength > bodyBytes {
		return errTooLarge
	}
	buf := c.server.buffer()
	defer c.server.done(buf)
	// A deadline for the body alone: http.Server.ReadTimeout would go on
	// running behind a release that waits, and cancel it.
	rc := http.NewResponseController(c.w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
		return err
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(c.w, c.r.Body, bodyBytes))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return errTooLarge
	}
	if err != nil {
		return field("body", "ended early or came too slowly")
	}
	c.unread = false
	if err := rc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := c.takeSlot(); err != nil {
		return err
	}
	return decode(buf.Bytes(), into)
}

// decode is strict: exactly the fields of the struct, by their exact names,
// each once, in valid UTF-8, and nothing behind them. encoding/json would
// take "Sandbox" for "sandbox", the last of two, and U+FFFD for every broken
// byte, which makes one sandbox of two.
func decode(data []byte, into any) error {
	data = bytes.Trim(data, " \t\r\n")
	switch {
	case len(data) == 0:
		return nil
	case !utf8.Valid(data):
		return field("body", "is not UTF-8")
	case data[0] != '{':
		return field("body", "is not a JSON object")
	}
	err := json.Unmarshal(data, into, json.RejectUnknownMembers(true))
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return unknown(semantic.JSONPointer, reflect.TypeOf(into).Elem())
	case errors.As(err, &semantic) && semantic.GoType != nil:
		return field(dotted(semantic.JSONPointer), "want %s, got %s", word(semantic.GoType), got(semantic))
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		return field(dotted(syntax.JSONPointer), "is given twice")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return field("body", "ends in the middle of the JSON")
	case errors.As(err, &syntax):
		return field("body", "is not JSON from byte %d on", syntax.ByteOffset)
	}
	return field("body", "is not what this verb takes")
}

// unknown names the field that is not known, and the one that was meant.
func unknown(at jsontext.Pointer, t reflect.Type) error {
	for token := range at.Parent().Tokens() {
		switch t.Kind() {
		case reflect.Slice:
			t = t.Elem()
		case reflect.Struct:
			for f := range fields(t) {
				if f.name == token {
					t = f.of
					break
				}
			}
		}
	}
	var names []string
	for f := range fields(t) {
		names = append(names, f.name)
	}
	return field(dotted(at), "is not known%s", meant(at.LastToken(), names))
}

type member struct {
	name string
	of   reflect.Type
}

// fields yields the JSON fields of a wire type.
func fields(t reflect.Type) func(func(member) bool) {
	return func(yield func(member) bool) {
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if !yield(member{name, t.Field(i).Type}) {
				return
			}
		}
	}
}

// dotted spells a JSON pointer as people do: containers[0].id.
func dotted(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		switch {
		case token != "" && strings.Trim(token, "0123456789") == "":
			b.WriteString("[" + token + "]")
		case b.Len() == 0:
			b.WriteString(token)
		default:
			b.WriteString("." + token)
		}
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}

func word(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int64:
		return "a whole number of 64 bits"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

func got(e *json.SemanticError) string {
	switch k := e.JSONKind; {
	case k == '"':
		return "a string"
	case k == '0' && len(e.JSONValue) > 0:
		return string(e.JSONValue)
	case k == '0':
		return "a number"
	case k == '[':
		return "a list"
	case k == '{':
		return "an object"
	case k == 't', k == 'f':
		return "a truth value"
	}
	return "something else"
}
