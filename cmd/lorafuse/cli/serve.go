package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// serveFlags holds the flags of `serve`.
type serveFlags struct {
	modelFlags
	tuningFlags
	adapters    []string
	adaptersDir string
	name        string
	template    string

	listen            string
	tlsCert, tlsKey   string
	apiKeys           []string
	apiKeyFile        string
	adminKeys         []string
	adminKeyFile      string
	updates           bool
	sharePrefixCache  bool
	maxResponses      string
	origins           []string
	allowedHosts      []string
	traceURL          string
	drainTimeout      time.Duration
	log               logForm
	texts             int
	batchTokens       int
	cacheTokens       int
	maxLength         int
	queue             int
	resident          int
	trainShare        float64
	adapterHostMemory string

	given func(flag string) bool
}

func (a *app) serve() *cobra.Command { return a.serveCommand(&serveFlags{}) }

func (a *app) serveCommand(f *serveFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve --model DIR [--adapter NAME=DIR]... [--adapters-dir DIR] [--listen HOST:PORT]",
		Short: "Serve a model and its adapters over an OpenAI-compatible API",
		Long: `Serve a model and its adapters over OpenAI's API (/v1/models, /v1/chat/completions,
/v1/responses, /v1/completions, /v1/embeddings) and vLLM's (/tokenize, /detokenize,
/v1/load_lora_adapter, /v1/unload_lora_adapter). /health is the liveness probe, /ready
the readiness probe, and /metrics serves Prometheus metrics.

The model field of a request selects the model or an adapter; requests for different
adapters share a batch. An adapter is registered with --adapter, or is a folder in
--adapters-dir, which is loaded on its first request under the name of the folder.
NAME@DIGITS selects a version by the first digits of its digest.

With --train-dir clients can fine-tune on the model while it serves, through
/v1/files and /v1/fine_tuning/jobs or Tinker's API under /api/v1. The adapter of a job is
served under its name as soon as the job ends. The folder stores files, jobs and
adapters; unfinished jobs resume after a restart.

With --devices the model is on several GPUs. A request goes to the GPU that has its
adapter, unless that is much busier than another one. If a GPU is lost, its requests get
status 503, and the server goes on with the others.

An embedding model (an encoder, or a sentence-transformers folder) serves only
/v1/embeddings; any other model serves text.

After SIGTERM or Ctrl-C the server finishes active requests: /ready returns 503 and new
requests are rejected. A second signal ends the program at once.

Store keys in the environment (LORAFUSE_API_KEY, LORAFUSE_ADMIN_KEY) or in files with one
key per line, because other users of the machine can see command-line flags. Files and
jobs belong to the key that created them. An owner name before the key, as in "ann KEY",
keeps them accessible after the key is replaced.`,
		Example: `  lorafuse serve --model path/to/model --adapter sql=output/adapter
  lorafuse serve --model owner/name --adapters-dir adapters --listen :8000 --api-key-file keys.txt
  lorafuse serve --model path/to/model --adapters-dir adapters --allow-adapter-updates --admin-key-file admin.txt
  lorafuse serve --model path/to/model --train-dir tuning --train-share 0.3 --api-key-file keys.txt
  lorafuse serve --model path/to/model --adapters-dir adapters --devices all
  lorafuse serve --model path/to/model --quantize int8 --max-num-seqs 64 --cache-tokens 100000 --log json
  curl -s http://127.0.0.1:8000/v1/completions --json '{"model": "sql", "prompt": "SELECT"}'`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			f.given = c.Flags().Changed
			return a.runServe(c.Context(), c.CommandPath(), f)
		},
	}
	f.modelFlag(c)
	f.machineFlags(c)
	f.quantizeFlag(c)
	flags := c.Flags()
	flags.StringVar(&f.devices, "devices", "", "GPUs that serve the model: all, or indices such as 0,2 (default: the first)")
	flags.SetNormalizeFunc(serveFlagName)
	flags.StringArrayVarP(&f.adapters, "adapter", "a", nil, "adapter name and folder, NAME=DIR (repeatable)")
	flags.StringVar(&f.adaptersDir, "adapters-dir", "", "folder of adapters, which are loaded on their first request")
	flags.StringVar(&f.name, "served-model-name", "", "model name in the API (default: folder or Hub name)")
	flags.StringVar(&f.template, "chat-template", "", "file with a Jinja chat template that replaces the tokenizer's")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8000", "address and port to listen on; :8000 means all addresses, port 0 any free port")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "certificate chain file; enables HTTPS")
	flags.StringVar(&f.tlsKey, "tls-key", "", "private key file of --tls-cert")
	flags.StringArrayVar(&f.apiKeys, "api-key", nil, "API key of clients, or owner name and key (repeatable); without any, clients need no key")
	flags.StringVar(&f.apiKeyFile, "api-key-file", "", "file of such keys, one per line")
	flags.StringArrayVar(&f.adminKeys, "admin-key", nil, "key that may load, unload and delete adapters (repeatable); without any, client keys may")
	flags.StringVar(&f.adminKeyFile, "admin-key-file", "", "file of such keys, one per line")
	flags.BoolVar(&f.updates, "allow-adapter-updates", false, "let clients unload adapters, and load adapters from --adapters-dir")
	flags.StringArrayVar(&f.origins, "allow-origin", nil, "origin of allowed web pages, such as https://chat.example.com (repeatable); * allows all")
	flags.StringArrayVar(&f.allowedHosts, "allowed-host", nil, "allowed host name in requests, in addition to localhost and the address (repeatable); * allows all")
	flags.DurationVar(&f.drainTimeout, "drain-timeout", time.Minute, "maximum duration of active requests after a shutdown signal, such as 90s")
	flags.StringVar(&f.traceURL, "trace-url", "", "OpenTelemetry collector that receives a span for each request, such as http://127.0.0.1:4318")
	choose(flags, &f.log, "log", "text", []string{"text", "json"}, "log format on standard error: text or json")
	flags.IntVar(&f.texts, "max-num-seqs", 0, "maximum sequences per batch; 0 means 32")
	flags.IntVar(&f.batchTokens, "max-num-batched-tokens", 0, "maximum tokens per step; 0 means 256. Larger values speed up prefill but delay other sequences")
	flags.IntVar(&f.cacheTokens, "cache-tokens", 0, "KV cache size in tokens; 0 means 2048 per sequence of --max-num-seqs, up to a quarter of the memory")
	flags.IntVar(&f.maxLength, "max-model-len", 0, "maximum tokens of prompt and answer; 0 means the limit of the model and the cache")
	flags.IntVar(&f.queue, "max-queue", 0, "maximum queued requests; 0 means 1024; more are rejected with 429")
	flags.IntVar(&f.resident, "max-loras", 0, "maximum adapters on the device; 0 means 16; others are swapped in")
	flags.StringVar(&f.adapterHostMemory, "adapter-host-memory", "", "host memory for adapters, such as 4GiB; unused adapters are evicted (default: unlimited)")
	flags.StringVar(&f.maxResponses, "max-responses-size", "64MiB", "maximum size of all responses that /v1/responses stores in memory; 0 stores none")
	flags.BoolVar(&f.sharePrefixCache, "share-prefix-cache", false, "share the prefix cache between keys; clients can then detect prompts of other keys")
	f.tuningFlags.flags(flags)
	flags.Float64Var(&f.trainShare, "train-share", 0.5, "fraction of time for training while requests are active, between 0 and 1")
	return c
}

// serveFlagName maps former names of flags, which are still accepted, to the names that vLLM has.
func serveFlagName(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "name":
		name = "served-model-name"
	case "max-texts":
		name = "max-num-seqs"
	case "max-batch-tokens":
		name = "max-num-batched-tokens"
	case "max-length":
		name = "max-model-len"
	case "max-adapters":
		name = "max-loras"
	}
	return pflag.NormalizedName(name)
}

// served holds the settings of a server apart from its model.
type served struct {
	adapters  []namedDir
	keys      serverKeys
	hostBytes int64
	responses int64 // maximum bytes of stored responses, negative for none
	limits    fileLimits
}

// namedDir is an adapter that a flag names.
type namedDir struct{ name, dir string }

// check validates all flags that can be checked without the model.
func (f *serveFlags) check(command string) (s served, err error) {
	if f.model == "" {
		return s, noModel(command)
	}
	if f.given("devices") && strings.TrimSpace(f.devices) == "" {
		return s, fmt.Errorf(`--devices: found %q, expected "all" or indices such as "0,2"`, f.devices)
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return s, fmt.Errorf("--listen: found %q, expected HOST:PORT or :PORT", f.listen)
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return s, usagef(command, "--tls-cert and --tls-key go together, found one of them")
	}
	if f.updates && f.adaptersDir == "" {
		return s, usagef(command, "--allow-adapter-updates needs --adapters-dir, below which adapters may be loaded")
	}
	for _, admin := range []string{"admin-key", "admin-key-file"} {
		if f.given(admin) && !f.updates && f.trainDir == "" {
			return s, usagef(command, "--%s is for --allow-adapter-updates or --train-dir, which are not given", admin)
		}
	}
	if f.adaptersDir != "" {
		if info, err := os.Stat(f.adaptersDir); err != nil {
			return s, fmt.Errorf("--adapters-dir: %w", err)
		} else if !info.IsDir() {
			return s, fmt.Errorf("--adapters-dir: %s is no folder", f.adaptersDir)
		}
	}
	for _, host := range f.allowedHosts {
		if strings.ContainsAny(host, "/ ") || host == "" {
			return s, fmt.Errorf("--allowed-host: found %q, expected a name or an address, such as lora.example.com", host)
		}
	}
	if f.drainTimeout < 0 {
		return s, fmt.Errorf("--drain-timeout: found %v, expected 0 or more", f.drainTimeout)
	}
	for name, n := range map[string]int{
		"max-num-seqs": f.texts, "max-num-batched-tokens": f.batchTokens, "cache-tokens": f.cacheTokens,
		"max-model-len": f.maxLength, "max-queue": f.queue, "max-loras": f.resident,
	} {
		if n < 0 || n == 0 && f.given(name) {
			return s, fmt.Errorf("--%s: found %d, expected 1 or more", name, n)
		}
	}
	if !(f.trainShare > 0 && f.trainShare < 1) {
		return s, fmt.Errorf("--train-share: found %v, expected more than 0 and less than 1", f.trainShare)
	}
	if s.limits, err = f.checkTuning(command); err != nil {
		return s, err
	}
	if f.adapterHostMemory != "" {
		if s.hostBytes, err = safetensors.ParseSize(f.adapterHostMemory); err != nil || s.hostBytes < 1 {
			return s, fmt.Errorf("--adapter-host-memory: found %q, expected bytes, such as 4GiB", f.adapterHostMemory)
		}
	}
	if s.responses, err = safetensors.ParseSize(f.maxResponses); err != nil || s.responses < 0 {
		return s, fmt.Errorf("--max-responses-size: found %q, expected bytes, such as 64MiB, or 0", f.maxResponses)
	}
	if s.responses == 0 {
		s.responses = -1
	}
	if s.adapters, err = f.namedAdapters(); err != nil {
		return s, err
	}
	s.keys, err = f.serverKeys()
	return s, err
}

// namedAdapters parses the values of --adapter.
func (f *serveFlags) namedAdapters() (all []namedDir, err error) {
	given := map[string]string{}
	for _, text := range f.adapters {
		name, dir, ok := strings.Cut(text, "=")
		if !ok || name == "" || dir == "" {
			return nil, fmt.Errorf("--adapter: found %q, expected NAME=DIR, such as sql=output/adapter", text)
		}
		if strings.HasPrefix(name, lora.ReservedPrefix) {
			return nil, fmt.Errorf("--adapter: found %q; names that begin with %s are reserved", name, lora.ReservedPrefix)
		}
		if other, twice := given[name]; twice {
			return nil, fmt.Errorf("--adapter: %q is %s and %s, expected one of them", name, other, dir)
		}
		given[name] = dir
		all = append(all, namedDir{name, dir})
	}
	return all, nil
}

// runServe serves until ctx ends.
func (a *app) runServe(ctx context.Context, command string, f *serveFlags) error {
	setup, err := f.check(command)
	if err != nil {
		return err
	}
	log := f.log.logger(a.err)
	if f.log == "json" {
		a.err = &logLines{log: log} // so that all there is can be read by machines
	}
	door, err := f.open(setup.keys, log)
	if err != nil {
		return err
	}
	defer door.close()
	log.Info("reading", "model", f.model, "url", door.url())
	s, err := a.openService(ctx, f, setup, log)
	if err != nil {
		return err
	}
	defer s.close()
	defer door.close() // before
	a.close()
	door.admit(s)
	log.Info("serving", "url", door.url(), "model", s.name, "devices", s.devices(), "adapters", s.adapters, "cache_tokens", s.cacheTokens, "max_length", s.maxLength)
	if warning := setup.keys.warning(door.addr(), f.updates); warning != "" {
		log.Warn(warning)
	}
	select {
	case err := <-door.failed:
		return &failure{fmt.Errorf("--listen: %w", err)}
	case err := <-s.lost:
		return &failure{fmt.Errorf("serve: %w", err)}
	case <-ctx.Done():
	}
	log.Info("ending: requests that are under way are answered, no others", "within", f.drainTimeout)
	if err := door.drain(s, f.drainTimeout); err != nil {
		return &failure{errors.New("serve: requests were under way when --drain-timeout was over, and are cut")}
	}
	log.Info("ended")
	return nil
}
