package server

import (
	"strconv"
	"strings"

	"github.com/ipamd/ipamd/ipam"
)

// etag is a lease's revision as HTTP spells it (RFC 9110, section 8.8.3).
func etag(l *ipam.Lease) string { return strconv.Quote(strconv.FormatInt(l.Rev, 10)) }

// seenAt is the revision at which the caller saw the lease: if_revision of the
// body, or the header If-Match; 0 when neither asks. Of several entity tags
// RFC 9110 wants any one to match; a lease has one revision, so one is taken.
func (c *call) seenAt(ifRevision int64) (int64, error) {
	if ifRevision < 0 {
		return 0, field("if_revision", "%d is below 0", ifRevision)
	}
	given := c.r.Header.Values("If-Match")
	if len(given) == 0 || len(given) == 1 && given[0] == "*" {
		return ifRevision, nil
	}
	text := strings.Join(given, ", ")
	inner, quoted := strings.CutPrefix(text, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	rev, err := strconv.ParseInt(inner, 10, 64)
	switch {
	case !quoted || !closed || err != nil || rev < 1:
		return 0, field("If-Match", `%.60s is not one revision in quotes, such as "42"`, text)
	case ifRevision != 0 && ifRevision != rev:
		return 0, field("If-Match", "%d differs from if_revision, %d", rev, ifRevision)
	}
	c.ifMatch = true
	return rev, nil
}
