//! Random operations against a model, on the simulated device and on an array: 1,000 seeds of
//! 2,000 operations each.

mod support;

use nowait_simulator::Profile;

/// Makes a test of each part of the seeds, so that they run side by side.
macro_rules! parts {
    ($($name:ident: $profile:ident, $seeds:expr;)*) => {$(
        #[test]
        fn $name() {
            support::run($seeds, 2_000, Profile::$profile);
        }
    )*};
}

parts! {
    a_file_on_the_device_is_the_models_1: Exact, 0..250;
    a_file_on_the_device_is_the_models_2: Exact, 250..500;
    a_file_on_the_device_is_the_models_3: Exact, 500..750;
    a_file_on_the_device_is_the_models_4: Exact, 750..1_000;
    a_file_in_memory_is_the_models_1: Memory, 0..500;
    a_file_in_memory_is_the_models_2: Memory, 500..1_000;
    a_storm_of_cancellations_loses_and_doubles_nothing: Storm, 0..250;
    a_file_on_a_failing_device_is_the_models_1: Faulty, 0..250;
    a_file_on_a_failing_device_is_the_models_2: Faulty, 250..500;
    a_file_on_a_failing_device_is_the_models_3: Faulty, 500..750;
    a_file_on_a_failing_device_is_the_models_4: Faulty, 750..1_000;
}
