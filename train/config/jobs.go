package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Jobs are runs that train concurrently on one model. A job has a name and any keys of a single run; other keys have
// the values given outside jobs.
type Jobs struct {
	nodes []*yaml.Node
	place func(n *yaml.Node) string
}

// Job is the configuration of one of several runs.
type Job struct {
	Name string
	*Config
}

// nameKey is the key of a job that no run has.
const nameKey = "name"

// common are the keys that jobs have in common: there is one model on one device.
var common = []string{
	"model", "quantize", "task", "backend", "devices", "distributed_timeout", "threads", "precision", "batch_invariant", "pack", "load", "memory", "memory_limit", "resume", "jobs",
}

// Len returns the number of jobs.
func (j Jobs) Len() int { return len(j.nodes) }

func (*Jobs) expects() string { return "a list of mappings, each with a name and keys of its own" }

func (j *Jobs) decodeYAML(n *yaml.Node) error {
	n = follow(n)
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return found(n)
	}
	j.nodes = nil
	for _, item := range n.Content {
		if item = follow(item); item.Kind != yaml.MappingNode {
			return found(item)
		}
		j.nodes = append(j.nodes, item)
	}
	return nil
}

// MarshalYAML writes the form that was read.
func (j Jobs) MarshalYAML() (any, error) {
	if len(j.nodes) == 0 {
		return nil, nil
	}
	return j.nodes, nil
}

// JobConfigs returns the validated configuration of each job as a run of its own. Errors name the job.
func (c *Config) JobConfigs() ([]Job, error) {
	var all []Job
	names, dirs := map[string]bool{}, map[string]string{}
	for i, n := range c.Jobs.nodes {
		name, err := c.nameOf(i, n)
		if err != nil {
			return nil, err
		}
		key := fmt.Sprintf("jobs[%s]", name)
		if names[name] {
			return nil, &Error{c.Jobs.at(n), key, "given twice, expected names that differ", ErrConflict}
		}
		names[name] = true
		own, err := c.job(name, n)
		if err != nil {
			return nil, inJob(key, err)
		}
		dir := filepath.Clean(own.OutputDir)
		if other, taken := dirs[dir]; taken {
			return nil, &Error{c.Jobs.at(n), key, fmt.Sprintf("output_dir: %s is that of the job %s, expected one of its own", own.OutputDir, other), ErrConflict}
		}
		dirs[dir] = name
		all = append(all, Job{name, own})
	}
	return all, nil
}

// at returns the place of a node of jobs.
func (j Jobs) at(n *yaml.Node) string {
	if j.place == nil {
		return override
	}
	return j.place(n)
}

// nameOf returns the name of job number i, which is also a folder name.
func (c *Config) nameOf(i int, n *yaml.Node) (string, error) {
	key := fmt.Sprintf("jobs[%d]", i)
	for at := 0; at+1 < len(n.Content); at += 2 {
		if n.Content[at].Value != nameKey {
			continue
		}
		v := n.Content[at+1]
		name, err := decodeString(v)
		if err != nil || name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\`) {
			return "", &Error{c.Jobs.at(v), key + ".name", fmt.Sprintf("%v, expected a name that a folder can have", found(follow(v))), ErrValue}
		}
		return name, nil
	}
	return "", &Error{c.Jobs.at(n), key + ".name", "missing, expected: the name of the job", ErrMissing}
}

// inJob adds the name of the job to an error.
func inJob(job string, err error) error {
	var all Errors
	all.add(err)
	for i, e := range all {
		in := *e
		in.Key = join(job, e.Key)
		all[i] = &in
	}
	return all.err()
}

// job returns the configuration of one job.
func (c *Config) job(name string, n *yaml.Node) (*Config, error) {
	own := *c
	own.Jobs, own.places, own.idle = Jobs{}, maps.Clone(c.places), nil
	delete(own.places, "jobs")
	own.OutputDir = filepath.Join(c.OutputDir, name)
	keys := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	given := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Value == nameKey && !given[nameKey] {
			given[nameKey] = true
			continue
		}
		if slices.Contains(common, key.Value) {
			return nil, &Error{c.Jobs.at(key), key.Value, "given in a job, expected beside jobs: it is the same for all", ErrConflict}
		}
		given[key.Value] = true
		keys.Content = append(keys.Content, key, n.Content[i+1])
	}
	own.replace(given, "epochs", "steps")
	own.replace(given, "steps", "epochs")
	own.replace(given, "warmup_ratio", "warmup_steps")
	own.replace(given, "warmup_steps", "warmup_ratio")
	d := decoder{config: &own, place: c.Jobs.at}
	if err := d.section(keys, reflect.ValueOf(&own).Elem(), ""); err != nil {
		return nil, err
	}
	return &own, own.Validate()
}

// replace makes a key of a job override another key that is given outside jobs.
func (c *Config) replace(given map[string]bool, key, other string) {
	if !given[key] || given[other] {
		return
	}
	delete(c.places, other)
	at := keyed(other).index
	reflect.ValueOf(c).Elem().FieldByIndex(at).Set(reflect.ValueOf(Default()).Elem().FieldByIndex(at))
	if other == "epochs" {
		c.Epochs = 0
	}
}

// validateJobs checks the jobs, and rejects keys that only a single run can have.
func (c *Config) validateJobs() error {
	jobs, err := c.JobConfigs()
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if !job.Task.definition().shared {
			return &Error{c.places["jobs"], fmt.Sprintf("jobs[%s].task", job.Name), fmt.Sprintf("found %s, expected %s, which jobs can learn", job.Task, suggest.Or(JobTasks())), ErrConflict}
		}
	}
	for _, job := range jobs {
		for _, key := range job.idle {
			if !slices.Contains(c.idle, key) {
				c.idle = append(c.idle, key)
			}
		}
	}
	switch {
	case c.Memory > 0:
		return &Error{c.places["memory"], "memory", "given besides jobs, expected memory_limit: the plan of a single run alone is fitted to memory", ErrConflict}
	case c.Resume != "" && c.Resume != "latest":
		return &Error{c.places["resume"], "resume", fmt.Sprintf("found %q besides jobs, expected latest: each job goes on from its own", c.Resume), ErrConflict}
	}
	return nil
}
