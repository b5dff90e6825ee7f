package docker

// What libnetwork sends and wants back. Fields that mean nothing here are left out.

// addressSpace is the one that the driver has: Docker's local and its global one.
const addressSpace = "ipamd"

// What libnetwork says in the options of a request for an address.
const (
	optionKind    = "RequestAddressType"
	kindGateway   = "com.docker.network.gateway"
	optionMAC     = "com.docker.network.endpoint.macaddress"
	mostRequest   = 1 << 20 // bytes
	pluginContent = "application/vnd.docker.plugins.v1.1+json"
)

type activation struct {
	Implements []string
}

type capabilities struct {
	RequiresMACAddress    bool
	RequiresRequestReplay bool
}

type addressSpaces struct {
	LocalDefaultAddressSpace  string
	GlobalDefaultAddressSpace string
}

type poolRequest struct {
	AddressSpace string
	Pool         string // a prefix; "" leaves the choice to the driver
	SubPool      string
	Options      map[string]string
	V6           bool
}

type poolReply struct {
	PoolID string
	Pool   string
	Data   map[string]string
}

type poolRelease struct {
	PoolID string
}

type addressRequest struct {
	PoolID  string
	Address string // a wish; "" leaves the choice to the driver
	Options map[string]string
}

type addressReply struct {
	Address string // with the length of its pool's prefix
	Data    map[string]string
}

type addressRelease struct {
	PoolID  string
	Address string
}

// A refusal is how libnetwork receives an error: its callers see the text.
type refusal struct {
	Error string
}
