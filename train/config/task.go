package config

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Task is a training task.
type Task string

// definition declares a task: what its configurations may say. Its section of the file, if it
// has one, is a field of Config.
type definition struct {
	name    Task
	doc     string // of its name
	section string // of its section
	adapter string // PEFT's task_type; empty for none. Tasks may share it: the first has it.
	texts   bool   // it reads texts, which the keys with the tag task:"texts" belong to
	chats   bool   // its rows may be conversations
	samples bool   // its runs make samples
	shared  bool   // its runs may share a model that is opened for language, as jobs do

	rows     func(c *Config, o *data.Options) // sets the options for reading its rows
	rules    []rule
	check    func(c *Config) error // checks more than rules can
	keep     func(c *Config)       // sets the paths that depend on output_dir
	synonyms map[string]synonym    // keys of other trainers
}

// texts is the tag of keys that belong to all tasks that read texts.
const texts = "texts"

// definitions lists the tasks, the default first.
var definitions = []*definition{&language, &embedding, &classification, &preference, &diffusion}

// definition returns the definition of the task. That of an unknown task is empty.
func (t Task) definition() *definition {
	for _, d := range definitions {
		if d.name == t {
			return d
		}
	}
	return &definition{}
}

// tasksThat lists the names of tasks.
func tasksThat(is func(*definition) bool) (names []string) {
	for _, d := range definitions {
		if is(d) {
			names = append(names, string(d.name))
		}
	}
	return names
}

// taskRules returns the rules of all tasks.
func taskRules() (all []rule) {
	for _, d := range definitions {
		all = append(all, d.rules...)
	}
	return all
}

// Tasks lists the names of all tasks.
func Tasks() []string { return tasksThat(func(*definition) bool { return true }) }

// JobTasks lists the tasks that support several concurrent runs on one model (key jobs).
func JobTasks() []string { return tasksThat(func(d *definition) bool { return d.shared }) }

// UnmarshalText reads the name of a task. It fails with ErrValue.
func (t *Task) UnmarshalText(text []byte) error {
	if !slices.Contains(Tasks(), string(text)) {
		return fmt.Errorf("%w: %s", ErrValue, suggest.Expected(string(text), Tasks()))
	}
	*t = Task(text)
	return nil
}

// MoveOutput changes the output folder. Files that the run reads from it stay where they are.
func (c *Config) MoveOutput(dir string) {
	if keep := c.Task.definition().keep; keep != nil {
		keep(c)
	}
	c.OutputDir = dir
}
