package cli

import (
	"fmt"
	"net"
	"os"
	"strings"

	apikeys "github.com/lorafuse/lorafuse/internal/serve/keys"
)

// serverKeys holds the API keys that clients must present.
type serverKeys struct{ users, admins []string }

// Environment variables that provide keys if no flag does.
const (
	envKey      = "LORAFUSE_API_KEY"
	envAdminKey = "LORAFUSE_ADMIN_KEY"
)

func (f *serveFlags) serverKeys() (k serverKeys, err error) {
	if k.users, err = readKeys("api-key", f.apiKeys, f.apiKeyFile, envKey); err == nil && (f.updates || f.trainDir != "") {
		k.admins, err = readKeys("admin-key", f.adminKeys, f.adminKeyFile, envAdminKey)
	}
	return k, err
}

// readKeys returns the keys of a flag and of a file that has one on each line, or else that of
// the environment. Each is KEY or NAME KEY.
func readKeys(flag string, keys []string, file, variable string) (all []string, err error) {
	add := func(from, key string) error {
		if _, _, err := apikeys.Parse(key); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		all = append(all, key)
		return nil
	}
	for _, key := range keys {
		if err := add("--"+flag, key); err != nil {
			return nil, err
		}
	}
	if file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--%s-file: %w", flag, err)
		}
		before := len(all)
		for line := range strings.Lines(string(raw)) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			if err := add("--"+flag+"-file", line); err != nil {
				return nil, err
			}
		}
		if len(all) == before {
			return nil, fmt.Errorf("--%s-file: %s has no key", flag, file)
		}
	}
	if key, ok := os.LookupEnv(variable); ok && len(all) == 0 && key != "" {
		if err := add(variable, key); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// warning describes access that is open, probably by mistake.
func (k serverKeys) warning(at *net.TCPAddr, updates bool) string {
	switch {
	case at.IP.IsLoopback():
		return ""
	case len(k.users) == 0:
		return "whoever reaches this address may ask: there is no --api-key"
	case updates && len(k.admins) == 0:
		return "every client may load and unload adapters: there is no --admin-key"
	}
	return ""
}
