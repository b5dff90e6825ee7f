package server_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/server/servertest"
)

// P4: while a kernel witness cannot answer, a person clears nothing either.
func TestNothingIsClearedUnderSilence(t *testing.T) {
	r := servertest.Start(t)
	c := &client.Client{Socket: r.Socket}
	defer c.CloseIdleConnections()
	ctx := context.Background()
	if _, err := c.Quarantine(ctx, "10.8.64.9", "printer"); err != nil {
		t.Fatal(err)
	}
	r.Board.Silence(census.Netns, errors.New("the dump was interrupted"))
	rev := r.Book.Rev()
	if _, err := c.Clear(ctx, "10.8.64.9"); !errors.Is(err, client.ErrEvidenceUnavailable) || r.Book.Rev() != rev {
		t.Errorf("clear under silence: %v, revision %d after %d", err, r.Book.Rev(), rev)
	}
	r.Board.Replace(census.Netns, nil, nil)
	if _, err := c.Clear(ctx, "10.8.64.9"); err != nil {
		t.Errorf("clear once all answer: %v", err)
	}
}
