package netdb

import (
	"github.com/ipamd/ipamd/ipam"
)

func plugText(p ipam.Plug) string {
	if p == (ipam.Plug{}) {
		return ""
	}
	return encode(p, 1)
}
