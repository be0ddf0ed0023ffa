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
		Short: "Answer OpenAI's clients over HTTP, with many adapters of one model",
		Long: `Serve a model and its adapters to clients of OpenAI's API: /v1/models,
/v1/chat/completions, /v1/completions and /v1/embeddings, and of vLLM's: /tokenize,
/detokenize, /v1/load_lora_adapter and /v1/unload_lora_adapter. /health says that the
server runs, /ready that it takes requests, /metrics how it does, for Prometheus.

The field model of a request names the model or an adapter; requests of different
adapters are answered together, in one batch. An adapter has the name that --adapter
gives it, or is a folder below --adapters-dir and has its name: that one is read when
it is first asked for. NAME@DIGITS is one version, by the first digits of its digest.

With --train-dir clients also have /v1/files and /v1/fine_tuning/jobs, and Tinker's API
below /api/v1: they train on the model while it serves, and what a job makes is served
under its name at once. The folder keeps files, jobs and adapters; a job that was under
way goes on when the program is started again.

A model that makes vectors (an encoder, or a folder of sentence-transformers) serves
/v1/embeddings alone; any other model serves text.

SIGTERM and Ctrl-C let requests that are under way end: /ready says 503 from then on,
and no request is taken any more. A second signal ends the program at once.

Keys are best kept in the environment, LORAFUSE_API_KEY and LORAFUSE_ADMIN_KEY, or in
files with a key on each line: others on the machine see the flags of a program. What a
client makes belongs to its key; a name before the key, as in "ann KEY", keeps it when
the key is replaced.`,
		Example: `  lorafuse serve --model path/to/model --adapter sql=output/adapter
  lorafuse serve --model owner/name --adapters-dir adapters --listen :8000 --api-key-file keys.txt
  lorafuse serve --model path/to/model --adapters-dir adapters --allow-adapter-updates --admin-key-file admin.txt
  lorafuse serve --model path/to/model --train-dir tuning --train-share 0.3 --api-key-file keys.txt
  lorafuse serve --model path/to/model --quantize int8 --max-texts 64 --cache-tokens 100000 --log json
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
	flags.StringArrayVarP(&f.adapters, "adapter", "a", nil, "name of an adapter and its folder, NAME=DIR, as often as needed")
	flags.StringVar(&f.adaptersDir, "adapters-dir", "", "folder of adapters, which are read when they are first asked for")
	flags.StringVar(&f.name, "name", "", "what clients call the model; default the name of its folder, or on the hub")
	flags.StringVar(&f.template, "chat-template", "", "file with a Jinja template for messages, in place of the tokenizer's own")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8000", "address and port to listen on; :8000 is all addresses, port 0 any port that is free")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "file with a certificate, and those that it is signed by: speaks HTTPS")
	flags.StringVar(&f.tlsKey, "tls-key", "", "file with the key of --tls-cert")
	flags.StringArrayVar(&f.apiKeys, "api-key", nil, "API key of clients, or a name for its owner and the key, as often as needed; without one no key is needed")
	flags.StringVar(&f.apiKeyFile, "api-key-file", "", "file of such keys, one a line")
	flags.StringArrayVar(&f.adminKeys, "admin-key", nil, "key to load, unload and delete adapters with, as often as needed; without one that of a client will do")
	flags.StringVar(&f.adminKeyFile, "admin-key-file", "", "file of such keys, one a line")
	flags.BoolVar(&f.updates, "allow-adapter-updates", false, "let clients unload adapters, and load those below --adapters-dir")
	flags.StringArrayVar(&f.origins, "allow-origin", nil, "web pages that may ask, such as https://chat.example.com, as often as needed; * is all")
	flags.StringArrayVar(&f.allowedHosts, "allowed-host", nil, "host name that clients may ask the server by besides localhost and its address, as often as needed; * is all")
	flags.DurationVar(&f.drainTimeout, "drain-timeout", time.Minute, "how long requests may go on when the program is to end, such as 90s")
	flags.StringVar(&f.traceURL, "trace-url", "", "collector of OpenTelemetry that gets a span for each request, such as http://127.0.0.1:4318")
	choose(flags, &f.log, "log", "text", []string{"text", "json"}, "form of the log on standard error: text or json")
	flags.IntVar(&f.texts, "max-texts", 0, "most texts that are continued at the same time, 0 is 32")
	flags.IntVar(&f.batchTokens, "max-batch-tokens", 0, "most tokens of a step, 0 is 256: the more, the sooner a prompt is read, and the longer others wait meanwhile")
	flags.IntVar(&f.cacheTokens, "cache-tokens", 0, "tokens that the cache has room for, 0 is 2048 for each of --max-texts in a quarter of the memory")
	flags.IntVar(&f.maxLength, "max-length", 0, "most tokens of a prompt and its answer, 0 is what the model takes and the cache has room for")
	flags.IntVar(&f.queue, "max-queue", 0, "most requests that wait, 0 is 1024; others are told to come again")
	flags.IntVar(&f.resident, "max-adapters", 0, "most adapters on the device at the same time, 0 is 16; others take turns")
	flags.StringVar(&f.adapterHostMemory, "adapter-host-memory", "", "memory for adapters on the host, such as 4GiB; those that are not in use are read again; default all there is")
	flags.BoolVar(&f.sharePrefixCache, "share-prefix-cache", false, "reuse what was computed for prompts of other keys too: keys can then find out what others have asked")
	f.tuningFlags.flags(flags)
	flags.Float64Var(&f.trainShare, "train-share", 0.5, "part of the time that training gets while there are requests, more than 0 and less than 1")
	return c
}

// served holds the settings of a server apart from its model.
type served struct {
	adapters  []namedDir
	keys      serverKeys
	hostBytes int64
	limits    fileLimits
}

// namedDir is an adapter that a flag names.
type namedDir struct{ name, dir string }

// check validates all flags that can be checked without the model.
func (f *serveFlags) check(command string) (s served, err error) {
	if f.model == "" {
		return s, noModel(command)
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
		"max-texts": f.texts, "max-batch-tokens": f.batchTokens, "cache-tokens": f.cacheTokens,
		"max-length": f.maxLength, "max-queue": f.queue, "max-adapters": f.resident,
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
	log.Info("serving", "url", door.url(), "model", s.name, "adapters", s.adapters, "cache_tokens", s.cacheTokens, "max_length", s.maxLength)
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
