package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// maxConfig bounds the configuration file, in bytes.
const maxConfig = 1 << 20

// config is a configuration file that has been read.
type config struct {
	path  string
	lines map[string]int // of the fields that set a flag
}

// readConfig sets the flags of cmd that the command line does not set from the YAML file at path: a
// mapping whose fields are the flags' names. Errors name the file, line and field.
func readConfig(cmd *cobra.Command, path string) (config, error) {
	c := config{path, map[string]int{}}
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return c, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	if len(data) > maxConfig {
		return c, fmt.Errorf("configuration %s: over %d bytes", path, maxConfig)
	}
	fields, err := configFields(data)
	if err != nil {
		return c, fmt.Errorf("configuration %s: %w", path, err)
	}
	for _, field := range fields {
		set, err := setFlag(cmd, field)
		if err != nil {
			return c, fmt.Errorf("configuration %s:%d: field %q: %w", path, field.line, field.name, err)
		}
		if set {
			c.lines[field.name] = field.line
		}
	}
	return c, nil
}

// locate adds the file and line to an error in the value of a flag that the file set.
func (c config) locate(err error) error {
	bad, ok := errors.AsType[flagError](err)
	if line := c.lines[bad.flag]; ok && line > 0 {
		return fmt.Errorf("configuration %s:%d: field %q: %w", c.path, line, bad.flag, bad)
	}
	return err
}

// configField is one field of a configuration file.
type configField struct {
	name   string
	values []string
	list   bool
	line   int
}

func configFields(data []byte) ([]configField, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil // empty, or comments only
	} else if err != nil {
		return nil, err // the error names the line
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: expected fields and their values", top.Line)
	}
	var out []configField
	seen := map[string]int{}
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if first, twice := seen[key.Value]; twice {
			return nil, fmt.Errorf("line %d: field %q is there already, at line %d", key.Line, key.Value, first)
		}
		seen[key.Value] = key.Line
		values := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			values = value.Content
		}
		field := configField{name: key.Value, line: key.Line, list: value.Kind == yaml.SequenceNode}
		for _, v := range values {
			if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
				return nil, fmt.Errorf("line %d: field %q: expected one value, or a list of values", v.Line, key.Value)
			}
			field.values = append(field.values, v.Value)
		}
		out = append(out, field)
	}
	return out, nil
}

// notInFile lists flags that are for the command line only: adopt and release read the daemon's file.
const notInFile = " config help dry-run yes from reason "

// setFlag sets a flag to a field's value, unless the command line sets it.
func setFlag(cmd *cobra.Command, field configField) (set bool, err error) {
	flag := cmd.Flags().Lookup(field.name)
	if flag == nil || strings.Contains(notInFile, " "+field.name+" ") {
		return false, errors.New("no such field; the fields are the flags of csi-volmgr run")
	}
	if flag.Changed {
		return false, nil // the command line wins
	}
	if _, repeatable := flag.Value.(interface{ Append(string) error }); field.list && !repeatable {
		return false, errors.New("expected one value, found a list")
	}
	for _, value := range field.values {
		err := flag.Value.Set(value)
		switch kind := flag.Value.Type(); {
		case err != nil && kind == "bool":
			return false, fmt.Errorf("value %q: expected true or false", value)
		case err != nil && kind == "int":
			return false, fmt.Errorf("value %q: expected a number", value)
		case err != nil && kind == "duration":
			return false, fmt.Errorf("value %q: expected a duration such as 30s", value)
		case err != nil:
			return false, fmt.Errorf("value %q: %w", value, err)
		}
	}
	return true, nil
}

// oneOf is a flag whose value is one of some words.
type oneOf struct {
	value   *string
	allowed []string
}

func (o oneOf) String() string {
	if o.value == nil { // cobra asks a zero value
		return ""
	}
	return *o.value
}

func (o oneOf) Set(s string) error {
	if !slices.Contains(o.allowed, s) {
		return errors.New("must be one of " + strings.Join(o.allowed, ", "))
	}
	*o.value = s
	return nil
}

func (o oneOf) Type() string { return strings.Join(o.allowed, "|") }
