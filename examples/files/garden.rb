# frozen_string_literal: true

require 'json'
require 'date'

module Garden
  class Plant
    attr_reader :name, :sown_on

    def initialize(name, sown_on: Date.today)
      @name = name
      @sown_on = sown_on
    end

    def age_in_days
      (Date.today - sown_on).to_i
    end

    def to_json(*args)
      { name: name, sown_on: sown_on.iso8601 }.to_json(*args)
    end
  end
end

plants = %w[tomato basil].map { |name| Garden::Plant.new(name) }
plants.each do |plant|
  puts "#{plant.name}: #{plant.age_in_days} days" unless plant.name.empty?
end
